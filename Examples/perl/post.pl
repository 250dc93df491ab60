#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# Posts a notification: post.pl [OBJECT [BYTES]]
use strict;
use warnings;
use Net::DBus qw(:typing);

my ($CENTER, $PATH) = ("org.carillon.NotificationCenter1", "/org/carillon/NotificationCenter1");
my ($object, $bytes) = (shift // "report.txt", shift // 4711);

my $reached = eval {
    my $center = Net::DBus->session->get_service($CENTER)->get_object($PATH, $CENTER);
    # Perl does not tell numbers from texts, so each value says its type. The option has the service keep it as the value
    # of this name and object, for observers that come later.
    $center->Post("com.example.Saved", $object, {
        bytes => dbus_int64($bytes), clean => dbus_boolean(1), title => dbus_string("Annual report — 2026"),
    }, { retain => dbus_boolean(1) });
};
if (my $error = $@) {
    print STDERR ref $error ? $error->name . ": " . $error->message . "\n" : $error;
    exit 1;
}
print "reached $reached\n";
