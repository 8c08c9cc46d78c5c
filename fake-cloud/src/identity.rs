//! Who an instance is: `fake://<cluster>/<UID of the claim>`.

/// The name of this cloud in the provider ids of its nodes. Two clouds with different cluster names don't touch each
/// other's nodes.
#[derive(Clone, Debug)]
pub struct Identity {
    prefix: String,
}

impl Identity {
    /// The identity for a cluster name.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        Self { prefix: format!("fake://{cluster}/") }
    }

    /// The provider id of a claim's instance.
    #[must_use]
    pub fn provider_id(&self, claim_uid: &str) -> String {
        format!("{}{claim_uid}", self.prefix)
    }

    /// The claim's UID in a provider id of ours.
    #[must_use]
    pub fn claim_uid<'a>(&self, provider_id: &'a str) -> Option<&'a str> {
        provider_id.strip_prefix(&self.prefix).filter(|uid| !uid.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own() {
        let ours = Identity::new("one");
        assert_eq!(ours.claim_uid(&ours.provider_id("u-1")), Some("u-1"));
        for foreign in ["fake://two/u-1", "fake://onetwo/u-1", "kwok://one/u-1", "fake://one/", "u-1", ""] {
            assert_eq!(ours.claim_uid(foreign), None, "{foreign}");
        }
    }
}
