//! IP addresses of nodes and pods, each unique in its range.

use std::{collections::HashMap, net::Ipv4Addr};

/// Addresses of hollow nodes: 198.18.0.0/15, set aside for tests of network devices (RFC 2544).
#[must_use]
pub fn nodes() -> Pool {
    Pool::new(Ipv4Addr::new(198, 18, 0, 0), 15)
}

/// Addresses of hollow pods: 100.64.0.0/10, the shared address space (RFC 6598).
#[must_use]
pub fn pods() -> Pool {
    Pool::new(Ipv4Addr::new(100, 64, 0, 0), 10)
}

/// A range of addresses and who has which. Owners are UIDs.
#[derive(Debug)]
pub struct Pool {
    first: u32,
    size: u32,
    cursor: u32,
    by_owner: HashMap<String, Ipv4Addr>,
    by_address: HashMap<Ipv4Addr, String>,
}

impl Pool {
    fn new(network: Ipv4Addr, bits: u32) -> Self {
        // neither the network's own address nor the broadcast address
        let (first, size) = (u32::from(network) + 1, (1 << (32 - bits)) - 2);
        Self { first, size, cursor: 0, by_owner: HashMap::new(), by_address: HashMap::new() }
    }

    /// Notes that an owner has an address already.
    pub fn reserve(&mut self, owner: &str, address: Ipv4Addr) {
        self.by_address.entry(address).or_insert_with(|| owner.to_owned());
        self.by_owner.insert(owner.to_owned(), address);
    }

    /// The owner's address, a free one if it had none; `None` when the range is used up. An address that was given back
    /// comes last.
    pub fn assign(&mut self, owner: &str) -> Option<Ipv4Addr> {
        if let Some(&address) = self.by_owner.get(owner) {
            return Some(address);
        }
        for _ in 0..self.size {
            let address = Ipv4Addr::from(self.first + self.cursor);
            self.cursor = (self.cursor + 1) % self.size;
            if !self.by_address.contains_key(&address) {
                self.reserve(owner, address);
                return Some(address);
            }
        }
        None
    }

    /// Gives the owner's address back.
    pub fn release(&mut self, owner: &str) {
        if let Some(address) = self.by_owner.remove(owner)
            && self.by_address.get(&address).is_some_and(|holder| holder == owner)
        {
            self.by_address.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_owner_keeps_its_address() {
        let mut pool = nodes();
        assert_eq!(pool.assign("a"), Some(Ipv4Addr::new(198, 18, 0, 1)));
        assert_eq!(pool.assign("b"), Some(Ipv4Addr::new(198, 18, 0, 2)));
        assert_eq!(pool.assign("a"), Some(Ipv4Addr::new(198, 18, 0, 1)));
        pool.release("a");
        assert_eq!(pool.assign("c"), Some(Ipv4Addr::new(198, 18, 0, 3)), "not at once again");
    }

    #[test]
    fn a_range_can_be_used_up() {
        let mut pool = Pool::new(Ipv4Addr::new(10, 0, 0, 0), 30);
        assert!(pool.assign("a").is_some() && pool.assign("b").is_some());
        assert_eq!(pool.assign("c"), None);
        pool.release("b");
        assert_eq!(pool.assign("c"), Some(Ipv4Addr::new(10, 0, 0, 2)));
    }

    proptest! {
        #[test]
        fn no_two_owners_share(steps in prop::collection::vec((0..20_u8, any::<bool>()), 0..200)) {
            let mut pool = Pool::new(Ipv4Addr::new(10, 0, 0, 0), 27);
            let mut have = HashMap::new();
            for (owner, take) in steps {
                let owner = owner.to_string();
                if take {
                    let address = pool.assign(&owner).expect("30 addresses for 20 owners");
                    if let Some(before) = have.insert(owner, address) {
                        prop_assert_eq!(before, address);
                    }
                } else {
                    pool.release(&owner);
                    have.remove(&owner);
                }
                prop_assert_eq!(have.values().collect::<HashSet<_>>().len(), have.len());
            }
        }
    }
}
