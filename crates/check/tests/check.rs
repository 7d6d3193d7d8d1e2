//! Clean pools of many kinds, on which nothing is wrong, and damaged ones, on which the right thing is.

mod clean;
mod damage;
