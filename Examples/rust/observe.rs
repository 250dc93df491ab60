// SPDX-License-Identifier: Apache-2.0

//! observe [NAME]: prints what is posted under a name, also when the service was restarted in between.

use dbus::arg::{ArgType, PropMap, RefArg, Variant};
use dbus::blocking::Connection;
use dbus::message::{MatchRule, Message};
use std::{collections::BTreeMap, error::Error, time::Duration};

const CENTER: &str = "org.carillon.NotificationCenter1";
const BUS: &str = "org.freedesktop.DBus";
const PATIENCE: Duration = Duration::from_secs(25);

/// Has the bus start the service. Does nothing if it runs.
fn start(bus: &Connection) -> Result<(), dbus::Error> {
    bus.with_proxy(BUS, "/org/freedesktop/DBus", PATIENCE).method_call(BUS, "StartServiceByName", (CENTER, 0u32))
}

fn observe(bus: &Connection, name: &str) -> Result<(), dbus::Error> {
    let center = bus.with_proxy(CENTER, "/org/carillon/NotificationCenter1", PATIENCE);
    // The service that the bus started again still knows our observers; without this we would have two.
    center.method_call::<(), _, _, _>(CENTER, "RemoveObservers", ("", ""))?;
    let options = PropMap::from([("retained".into(), Variant(Box::new(true) as Box<dyn RefArg>))]);
    center.method_call::<(), _, _, _>(CENTER, "AddObserver", (name, "", options))?;
    println!("observing {name}");
    Ok(())
}

fn received(bus: &Connection, message: &Message, name: &str, owner: &mut String) -> Result<(), Box<dyn Error>> {
    let sender = message.sender().map_or(String::new(), |sender| sender.to_string());
    match &*message.member().ok_or("a signal without a name")? {
        "Notification" if sender == *owner => {
            let (name, object, user_info): (String, String, PropMap) = message.read3()?;
            print!("{name} {object}");
            for (key, value) in user_info.into_iter().collect::<BTreeMap<_, _>>() {
                print!(" {key}={}", text(&value.0));
            }
            println!();
        }
        "Dropped" if sender == *owner => {
            let (count, _observers, reason): (u64, Vec<u64>, String) = message.read3()?;
            println!("lost {count} ({reason})");
        }
        "NameOwnerChanged" if sender == BUS => {
            *owner = message.read3::<String, String, String>()?.2;
            // Nobody else may call it for hours.
            if owner.is_empty() { start(bus)? } else { observe(bus, name)? }
        }
        _ => {}
    }
    Ok(())
}

fn text(value: &dyn RefArg) -> String {
    match value.arg_type() {
        ArgType::Boolean => (value.as_i64() == Some(1)).to_string(),
        ArgType::String => value.as_str().unwrap_or_default().to_string(),
        ArgType::Double => value.as_f64().unwrap_or_default().to_string(),
        ArgType::UInt64 => value.as_u64().unwrap_or_default().to_string(),
        _ => value.as_i64().map_or(format!("{value:?}"), |number| number.to_string()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "com.example.Saved".to_string());
    let bus = Connection::new_session()?;
    start(&bus)?;
    bus.add_match_no_cb(&format!("type='signal',sender='{BUS}',member='NameOwnerChanged',arg0='{CENTER}'"))?;
    let (mut owner,): (String,) =
        bus.with_proxy(BUS, "/org/freedesktop/DBus", PATIENCE).method_call(BUS, "GetNameOwner", (CENTER,))?;
    observe(&bus, &name)?;
    // What is addressed to us needs no match on the bus, but it must come from the service.
    let signals = MatchRule::new().with_type(dbus::MessageType::Signal);
    dbus::channel::MatchingReceiver::start_receive(&bus, signals, Box::new(move |message, bus| {
        if let Err(error) = received(bus, &message, &name, &mut owner) {
            eprintln!("observe: {error}");
        }
        true
    }));
    loop {
        bus.process(Duration::from_secs(86400))?;
    }
}
