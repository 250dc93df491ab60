#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# Prints notifications: observe.pl [NAME]
use strict;
use warnings;
use Net::DBus qw(:typing);
use Net::DBus::Reactor;

my ($CENTER, $PATH) = ("org.carillon.NotificationCenter1", "/org/carillon/NotificationCenter1");
my $name = shift // "com.example.Saved";
$| = 1;

sub notification {
    my ($of, $object, $user_info) = @_;
    print join(" ", $of, $object, map { "$_=" . text($user_info->{$_}) } sort keys %$user_info), "\n";
}

# Net::DBus hands true and false over as Perl's own, which can be told from 1 and "" since Perl 5.36.
sub text {
    my ($value) = @_;
    no warnings "experimental::builtin";
    return builtin::is_bool($value) ? ($value ? "true" : "false") : $value;
}

sub dropped {
    my ($count, undef, $reason) = @_;
    print "lost $count ($reason)\n";
}

my $bus = eval { Net::DBus->session } // die "no session bus: " . $@->message . "\n";
my $daemon = $bus->get_bus_object;
# Has the bus start the service. Net::DBus follows the owner of the name, and believes only that.
my $center = eval { $bus->get_service($CENTER)->get_object($PATH, $CENTER) } // die $@->message . "\n";

my $owner;

sub observe {
    $owner = $bus->get_service_owner($CENTER);
    # A service that was started anew remembers us. Begin from nothing, or registrations would add up.
    $center->RemoveObservers("", "");
    $center->AddObserver($name, "", { retained => dbus_boolean(1) });
    print "observing $name\n";
}

$center->connect_to_signal("Notification", \&notification);
$center->connect_to_signal("Dropped", \&dropped);
observe();
$daemon->connect_to_signal(NameOwnerChanged => sub {
    my ($changed, undef, $new) = @_;
    # The one that was started for us is known already.
    return if $changed ne $CENTER || $new eq $owner;
    $new ? observe() : $daemon->StartServiceByName($CENTER, 0);
});
Net::DBus::Reactor->main->run;
