//! Free loopback ports.

use std::{
    hash::{BuildHasher, RandomState},
    net::{Ipv4Addr, TcpListener},
};

use crate::Error;

/// Ports below the range that Linux takes for outgoing connections: else the servers' own connections could take one
/// between our look and the server's bind.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// That many different ports, free at this moment. Another process may be quicker: a start that fails is repeated.
pub(crate) fn free(count: usize) -> Result<Vec<u16>, Error> {
    // The only source of randomness in the standard library; two planes at once shall not try the same ports.
    let seed = RandomState::new().hash_one(0_u8) % u64::from(COUNT);
    let start = FIRST + u16::try_from(seed).unwrap_or_default();
    // Held until all are chosen, so that they differ.
    let held: Vec<TcpListener> = (start..FIRST + COUNT)
        .chain(FIRST..start)
        .filter_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok())
        .take(count)
        .collect();
    if held.len() < count {
        return Err(Error::NoPort);
    }
    held.iter()
        .map(|listener| listener.local_addr().map(|address| address.port()).map_err(|_| Error::NoPort))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ports_differ_and_can_be_bound() {
        let ports = free(8).unwrap();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 8);
        for port in ports {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        }
    }
}
