//! Turns NodeClaims into nodes without a cloud.
