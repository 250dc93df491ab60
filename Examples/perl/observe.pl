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

# Net::DBus asks for the owner of a name once, and would be deaf after a restart of the service. So the service is
# addressed by its unique name, anew for each; signals of others are not believed.
my $owner = "";

sub observe {
    $owner = $daemon->GetNameOwner($CENTER);
    my $center = $bus->get_service($owner)->get_object($PATH, $CENTER);
    $center->connect_to_signal("Notification", \&notification);
    $center->connect_to_signal("Dropped", \&dropped);
    # A service that was started anew remembers us. Begin from nothing, or registrations would add up.
    $center->RemoveObservers("", "");
    $center->AddObserver($name, "", { retained => dbus_boolean(1) });
    print "observing $name\n";
}

$daemon->connect_to_signal(NameOwnerChanged => sub {
    my ($changed, undef, $new) = @_;
    # The one that we have started is known already.
    return if $changed ne $CENTER || $new eq $owner;
    $new ? observe() : $daemon->StartServiceByName($CENTER, 0);
});
eval { $daemon->StartServiceByName($CENTER, 0); observe(); 1 } or die ref $@ ? $@->message . "\n" : $@;
Net::DBus::Reactor->main->run;
