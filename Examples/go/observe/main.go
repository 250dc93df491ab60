// SPDX-License-Identifier: Apache-2.0

// observe [NAME]: prints what is posted under a name, also when the service was restarted in between.
package main

import (
	"fmt"
	"os"
	"sort"

	"github.com/godbus/dbus/v5"
)

const center = "org.carillon.NotificationCenter1"

func main() {
	name := "com.example.Saved"
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	// The standard handler hands signals over in any order when they come faster than they are read.
	bus, err := dbus.ConnectSessionBus(dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	check(err)
	check(start(bus))

	signals := make(chan *dbus.Signal, 64)
	bus.Signal(signals) // what is addressed to us needs no match
	check(bus.AddMatchSignal(dbus.WithMatchSender("org.freedesktop.DBus"),
		dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, center)))
	var owner string
	check(bus.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, center).Store(&owner))
	check(observe(bus, name))

	for signal := range signals {
		switch {
		case signal.Sender == owner && signal.Name == center+".Notification":
			received(signal.Body)
		case signal.Sender == owner && signal.Name == center+".Dropped":
			fmt.Printf("lost %d (%s)\n", signal.Body[0], signal.Body[2])
		case signal.Sender == "org.freedesktop.DBus" && signal.Name == "org.freedesktop.DBus.NameOwnerChanged":
			owner = signal.Body[2].(string)
			if owner == "" {
				err = start(bus) // nobody else may call it for hours
			} else {
				err = observe(bus, name)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "observe:", err)
			}
		}
	}
	check(fmt.Errorf("the bus is gone"))
}

// start has the bus start the service. It does nothing if it runs.
func start(bus *dbus.Conn) error {
	return bus.BusObject().Call("org.freedesktop.DBus.StartServiceByName", 0, center, uint32(0)).Err
}

func observe(bus *dbus.Conn, name string) error {
	object := bus.Object(center, "/org/carillon/NotificationCenter1")
	// The service that the bus started again still knows our observers; without this we would have two.
	if err := object.Call(center+".RemoveObservers", 0, "", "").Err; err != nil {
		return err
	}
	options := map[string]dbus.Variant{"retained": dbus.MakeVariant(true)}
	if err := object.Call(center+".AddObserver", 0, name, "", options).Err; err != nil {
		return err
	}
	fmt.Println("observing", name)
	return nil
}

func received(body []interface{}) {
	userInfo := body[2].(map[string]dbus.Variant)
	keys := make([]string, 0, len(userInfo))
	for key := range userInfo {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	fmt.Print(body[0], " ", body[1])
	for _, key := range keys {
		fmt.Printf(" %s=%v", key, userInfo[key].Value())
	}
	fmt.Println()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "observe:", err)
		os.Exit(1)
	}
}
