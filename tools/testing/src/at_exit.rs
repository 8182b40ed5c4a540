//! Devices whose work is done before the process ends: a software driver compiles kernels on threads of its
//! own, and a process that ends meanwhile takes the compiler's tables from under them.
#![allow(unsafe_code)] // `atexit` is a function of the C library

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, Once, PoisonError},
};

use tensor_core::Device;

static DEVICES: Mutex<Vec<Device>> = Mutex::new(Vec::new());

unsafe extern "C" {
    safe fn atexit(function: extern "C" fn()) -> std::ffi::c_int;
}

/// The device, whose work the end of the process waits for. Functions that are registered last are called
/// first, so that the driver, which is loaded by now, is still there.
pub fn awaited_at_exit(device: Device) -> Device {
    static REGISTER: Once = Once::new();
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    if !devices.contains(&device) {
        devices.push(device.clone());
        REGISTER.call_once(|| assert_eq!(atexit(wait), 0, "the C library takes no more functions"));
    }
    device
}

extern "C" fn wait() {
    // A test may hold it in a thread that was left behind.
    let Ok(devices) = DEVICES.try_lock() else { return };
    for device in devices.iter() {
        // The tests are over, and a lost device is no failure of theirs.
        let _ = catch_unwind(AssertUnwindSafe(|| device.synchronize()));
    }
}
