//! What people and other programs read, each a function of the report.

mod badge;
mod html;
mod junit;
mod lanes;
mod markdown;
mod table;
mod words;

pub use table::TableStyle;
