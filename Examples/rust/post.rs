// SPDX-License-Identifier: Apache-2.0

//! post [OBJECT [BYTES]]: posts that a file was saved, as a value that stays for those who come later.

use dbus::arg::{PropMap, RefArg, Variant};
use dbus::blocking::Connection;
use std::{env, error::Error, process::ExitCode, time::Duration};

const CENTER: &str = "org.carillon.NotificationCenter1";

/// The type on the bus is that of the value: i64 is x, i32 would be i.
fn entry(key: &str, value: impl RefArg + 'static) -> (String, Variant<Box<dyn RefArg>>) {
    (key.to_string(), Variant(Box::new(value)))
}

fn post(object: &str, bytes: i64) -> Result<u32, dbus::Error> {
    let user_info: PropMap =
        [entry("bytes", bytes), entry("clean", true), entry("title", "Annual report — 2026".to_string())].into();
    let options: PropMap = [entry("retain", true)].into();
    let bus = Connection::new_session()?;
    let center = bus.with_proxy(CENTER, "/org/carillon/NotificationCenter1", Duration::from_secs(25));
    let (receivers,): (u32,) =
        center.method_call(CENTER, "Post", ("com.example.Saved", object, user_info, options))?;
    Ok(receivers)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let object = env::args().nth(1).unwrap_or_else(|| "report.txt".to_string());
    let bytes = env::args().nth(2).map_or(Ok(4711), |bytes| bytes.parse())?;
    match post(&object, bytes) {
        Ok(receivers) => println!("reached {receivers}"),
        Err(error) => {
            eprintln!("post: {}: {}", error.name().unwrap_or("error"), error.message().unwrap_or_default());
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}
