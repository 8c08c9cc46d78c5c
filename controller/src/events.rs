//! Kubernetes Events about objects, each at most once in 15 minutes, and a few at a time: nothing waits for them, and many nodes
//! that are born at once have better use for the API server.

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
use kube::{Api, Client, Resource, api::PostParams};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{Instant, MissedTickBehavior, interval},
};
use tracing::{error, warn};

use crate::{error::request_text, metrics::Metrics, write::MANAGER};

/// An event that says the same about the same object is not repeated for this long.
const SILENCE: Duration = Duration::from_mins(15);

/// Time between two events.
const PACE: Duration = Duration::from_millis(50);
/// Longest note that the API server takes, in bytes.
const LONGEST_NOTE: usize = 1024;

/// The events of the last 15 minutes.
#[derive(Debug)]
pub struct EventLog {
    sent: HashMap<(EventObject, &'static str, String), Instant>,
    queue: UnboundedSender<ApiEvent>,
}

impl EventLog {
    /// Starts the task that sends events. It ends with this value.
    pub fn start(client: Client, metrics: Metrics) -> Self {
        let (queue, waiting) = unbounded_channel();
        tokio::spawn(send(client, metrics, waiting));
        Self { sent: HashMap::new(), queue }
    }

    /// Sends an event if it is news.
    pub fn record(&mut self, event: &Event, now: Instant) {
        if self.is_news(event, now) && self.queue.send(api_event(event, Timestamp::now())).is_err() {
            error!("no events can be sent any more");
        }
    }

    /// Whether an event is news; it counts as sent from now on.
    fn is_news(&mut self, event: &Event, now: Instant) -> bool {
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

/// Sends events one after the other. What can't be sent is not repeated.
async fn send(client: Client, metrics: Metrics, mut waiting: UnboundedReceiver<ApiEvent>) {
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while let Some(event) = waiting.recv().await {
        pace.tick().await;
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let api: Api<ApiEvent> = Api::namespaced(client.clone(), &namespace);
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            metrics.error("event");
            warn!(reason = event.reason, error = request_text(&error), "event not recorded");
        }
    }
}

/// The Event object for an event. Events about cluster-scoped objects are in the namespace `default`.
fn api_event(event: &Event, now: Timestamp) -> ApiEvent {
    let regarding = regarding(&event.about);
    let namespace = regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
    // as other recorders do: the object's name and the time in hexadecimal nanoseconds
    let name = format!("{}.{:x}", regarding.name.as_deref().unwrap_or_default(), now.as_nanosecond());
    ApiEvent {
        metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
        action: Some(event.reason.to_owned()),
        reason: Some(event.reason.to_owned()),
        note: Some(note(&event.message)),
        type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
        event_time: Some(MicroTime(now)),
        regarding: Some(regarding),
        reporting_controller: Some(MANAGER.to_owned()),
        reporting_instance: Some(MANAGER.to_owned()),
        ..ApiEvent::default()
    }
}

/// The part of a message that the API server takes.
fn note(message: &str) -> String {
    message[..message.floor_char_boundary(LONGEST_NOTE)].to_owned()
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
        let now = Instant::now();
        let mut log = EventLog { sent: HashMap::new(), queue: unbounded_channel().0 };
        assert!(log.is_news(&event("a"), now));
        assert!(!log.is_news(&event("a"), now + Duration::from_secs(899)));
        assert!(log.is_news(&event("b"), now));
        assert!(log.is_news(&event("a"), now + Duration::from_mins(15)));
        log.forget(now + Duration::from_secs(901));
        assert_eq!(log.sent.len(), 1);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        assert_eq!(note(&"ä".repeat(600)).len(), 1024);
        assert_eq!(note(&format!("x{}", "ä".repeat(600))).len(), 1023);
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
