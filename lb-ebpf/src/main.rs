//! The entry points.
#![no_std]
#![no_main]
