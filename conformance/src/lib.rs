//! What the `bufconf` command does; the binary itself only parses, calls and exits.
//!
//! | module | what it does |
//! |---|---|
//! | [`cli`] | the command line |
//! | [`catalogue`] | the scenarios that are built in, and users' own |
//! | [`subject`] | the implementation under test and the processes it consists of |
//! | [`run_dir`] | the folder of one run: planes, leases, entries |
//! | [`session`] | one scenario on the right plane |
//! | [`run`] | `bufconf run` |
//! | [`list`] | `bufconf list`, `lint`, `schema` |
//! | [`report`] | `bufconf report …` |
//! | [`output`] | what a run shows and writes |
//! | [`signals`] | what ends a run early |
//! | [`cluster`] | `bufconf cluster …` |
//! | [`doctor`] | `bufconf doctor` |
//! | [`failure`] | errors and their exit codes |

pub mod catalogue;
pub mod cli;
pub mod cluster;
pub mod doctor;
pub mod failure;
pub mod list;
pub mod output;
pub mod report;
pub mod run;
pub mod run_dir;
pub mod session;
pub mod signals;
pub mod subject;
