//! The bufconf command line.
fn main() {}
