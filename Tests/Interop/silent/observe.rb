# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
# An observer with ruby-dbus: `ruby observe.rb NAME`. See test_silent_libraries.py.
require "dbus"

PATH = "/org/carillon/NotificationCenter1"
INTERFACE = "org.carillon.NotificationCenter1"

$stdout.sync = true
bus = DBus.session_bus
center = bus.service(INTERFACE).object(PATH)
center.introspect
center.default_iface = INTERFACE
received = dropped = faults = expected = 0
center.on_signal("Notification") do |_name, object, _user_info, _observers, _poster, _serial, sequence|
  expected += 1
  faults += 1 if sequence != expected
  expected = sequence
  if object == "end"
    puts "received=#{received} dropped=#{dropped} faults=#{faults}"
  else
    faults += 1 if object.to_i != received + dropped
    received += 1
  end
end
center.on_signal("Dropped") do |count, _observers, _reason|
  dropped += count
  expected += count
end
center.AddObserver(ARGV[0], "", {})
puts "ready #{bus.unique_name}"
main = DBus::Main.new
main << bus
main.run
