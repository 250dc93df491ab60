#!/usr/bin/ruby
# SPDX-License-Identifier: Apache-2.0
# Posts a notification: post.rb [OBJECT [BYTES]]
require "dbus"

CENTER, PATH = "org.carillon.NotificationCenter1", "/org/carillon/NotificationCenter1"
object, bytes = ARGV[0] || "report.txt", Integer(ARGV[1] || 4711)

begin
  center = DBus.session_bus.service(CENTER).object(PATH)
  center.introspect
  center.default_iface = CENTER
  # A variant is its type and its value.
  user_info = { "bytes" => ["x", bytes], "clean" => ["b", true], "title" => ["s", "Annual report — 2026"] }
  # Kept as the value of this name and object, for observers that come later.
  options = { "retain" => ["b", true] }
  reached, = center.Post("com.example.Saved", object, user_info, options)
rescue DBus::Error => error
  abort "#{error.name}: #{error.message.sub(/; caused by .*/m, "")}"
rescue SystemCallError => error
  abort "no session bus: #{error.message}"
end
puts "reached #{reached}"
