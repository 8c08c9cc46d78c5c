//! Kubernetes Events about objects, each at most once in 15 minutes.

use std::{collections::HashMap, time::Duration};

use buffer_api::{CapacityBuffer, NodeClaim, NodePool};
use buffer_core::plan::{Event, EventObject};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Node, ObjectReference, Pod},
        events::v1::Event as ApiEvent,
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::Resource;
use tokio::time::Instant;

use crate::write::MANAGER;

/// An event that says the same about the same object is not repeated for this long.
const SILENCE: Duration = Duration::from_mins(15);

/// The events of the last 15 minutes.
#[derive(Debug, Default)]
pub struct EventLog {
    sent: HashMap<(EventObject, &'static str, String), Instant>,
}

impl EventLog {
    /// Whether an event is news; it counts as sent from now on.
    pub fn is_news(&mut self, event: &Event, now: Instant) -> bool {
        let key = (event.about.clone(), event.reason, event.message.clone());
        let news = self.sent.get(&key).is_none_or(|&sent| now.duration_since(sent) >= SILENCE);
        if news {
            self.sent.insert(key, now);
        }
        news
    }

    /// Forgets what may be said again.
    pub fn forget(&mut self, now: Instant) {
        self.sent.retain(|_, &mut sent| now.duration_since(sent) < SILENCE);
    }
}

/// The Event object for an event. Events about cluster-scoped objects are in the namespace `default`.
pub fn api_event(event: &Event, now: Timestamp) -> ApiEvent {
    let regarding = regarding(&event.about);
    let namespace = regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
    // as other recorders do: the object's name and the time in hexadecimal nanoseconds
    let name = format!("{}.{:x}", regarding.name.as_deref().unwrap_or_default(), now.as_nanosecond());
    ApiEvent {
        metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
        action: Some(event.reason.to_owned()),
        reason: Some(event.reason.to_owned()),
        note: Some(event.message.clone()),
        type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
        event_time: Some(MicroTime(now)),
        regarding: Some(regarding),
        reporting_controller: Some(MANAGER.to_owned()),
        reporting_instance: Some(MANAGER.to_owned()),
        ..ApiEvent::default()
    }
}

fn regarding(about: &EventObject) -> ObjectReference {
    fn reference<K: Resource<DynamicType = ()>>(namespace: &str, name: &str, uid: &str) -> ObjectReference {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            namespace: text(namespace),
            name: text(name),
            uid: text(uid),
            ..ObjectReference::default()
        }
    }
    match about {
        EventObject::Node(name, uid) => reference::<Node>("", name, uid),
        EventObject::Claim(name, uid) => reference::<NodeClaim>("", name, uid),
        EventObject::Pool(name, uid) => reference::<NodePool>("", name, uid),
        EventObject::Buffer(key, uid) => reference::<CapacityBuffer>(&key.namespace, &key.name, uid),
        EventObject::Pod(key, uid) => reference::<Pod>(&key.namespace, &key.name, uid),
    }
}

#[cfg(test)]
mod tests {
    use buffer_core::snapshot::ObjectKey;
    use similar_asserts::assert_eq;

    use super::*;

    fn event(message: &str) -> Event {
        Event {
            about: EventObject::Node("n".to_owned(), "u".to_owned()),
            reason: "Unconsolidatable",
            message: message.to_owned(),
            warning: false,
        }
    }

    #[test]
    fn the_same_is_said_once_in_fifteen_minutes() {
        let (mut log, now) = (EventLog::default(), Instant::now());
        assert!(log.is_news(&event("a"), now));
        assert!(!log.is_news(&event("a"), now + Duration::from_secs(899)));
        assert!(log.is_news(&event("b"), now));
        assert!(log.is_news(&event("a"), now + Duration::from_mins(15)));
        log.forget(now + Duration::from_secs(901));
        assert_eq!(log.sent.len(), 1);
    }

    #[test]
    fn events_about_nodes_are_in_default() {
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let made = api_event(&event("text"), now);
        assert_eq!(made.metadata.namespace.as_deref(), Some("default"));
        let regarding = made.regarding.unwrap();
        assert_eq!(regarding.namespace, None);
        assert_eq!((regarding.kind.as_deref(), regarding.api_version.as_deref()), (Some("Node"), Some("v1")));
        let key = ObjectKey { namespace: "ns".to_owned(), name: "b".to_owned() };
        let about = EventObject::Buffer(key, "u".to_owned());
        let made = api_event(&Event { about, warning: true, ..event("x") }, now);
        assert_eq!(made.metadata.namespace.as_deref(), Some("ns"));
        assert_eq!(made.type_.as_deref(), Some("Warning"));
        assert_eq!(made.regarding.unwrap().api_version.as_deref(), Some("autoscaling.x-k8s.io/v1beta1"));
    }
}
