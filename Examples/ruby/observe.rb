#!/usr/bin/ruby
# SPDX-License-Identifier: Apache-2.0
# Prints notifications: observe.rb [NAME]
require "dbus"

CENTER, PATH = "org.carillon.NotificationCenter1", "/org/carillon/NotificationCenter1"
name = ARGV[0] || "com.example.Saved"
$stdout.sync = true

begin
  bus = DBus.session_bus
  daemon = bus.proxy # the bus itself
  daemon.StartServiceByName(CENTER, 0)
  center = bus.service(CENTER).object(PATH)
  center.introspect
  center.default_iface = CENTER
rescue DBus::Error, SystemCallError => error
  abort error.message.sub(/; caused by .*/m, "")
end
owner = nil

observe = lambda do
  owner, = daemon.GetNameOwner(CENTER)
  # A service that was started anew remembers us. Begin from nothing, or registrations would add up.
  center.RemoveObservers("", "")
  center.AddObserver(name, "", { "retained" => ["b", true] })
  puts "observing #{name}"
end

# With `center.on_signal` one does not learn who sent it.
signals = DBus::MatchRule.new
signals.type, signals.interface, signals.path = "signal", CENTER, PATH
bus.add_match(signals) do |message|
  next if message.sender != owner
  case message.member
  when "Notification"
    of, object, user_info = message.params
    puts [of, object, *user_info.sort.map { |key, value| "#{key}=#{value}" }].join(" ")
  when "Dropped"
    count, _observers, reason = message.params
    puts "lost #{count} (#{reason})"
  end
end

owners = DBus::MatchRule.new
owners.type, owners.interface, owners.member = "signal", "org.freedesktop.DBus", "NameOwnerChanged"
bus.add_match(owners) do |message|
  changed, _old, new = message.params
  # The one that we have started is known already.
  next if message.sender != "org.freedesktop.DBus" || changed != CENTER || new == owner
  new.empty? ? daemon.StartServiceByName(CENTER, 0) : observe.call
end

observe.call
main = DBus::Main.new
main << bus
main.run
