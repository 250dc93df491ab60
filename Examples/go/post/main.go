// SPDX-License-Identifier: Apache-2.0

// post [OBJECT [BYTES]]: posts that a file was saved, as a value that stays for those who come later.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/godbus/dbus/v5"
)

const center = "org.carillon.NotificationCenter1"

func main() {
	if err := post(os.Args[1:]); err != nil {
		var refused dbus.Error
		if errors.As(err, &refused) { // its text alone is without the name
			err = fmt.Errorf("%s: %w", refused.Name, err)
		}
		fmt.Fprintln(os.Stderr, "post:", err)
		os.Exit(1)
	}
}

func post(arguments []string) error {
	object, bytes := "report.txt", int64(4711)
	if len(arguments) > 0 {
		object = arguments[0]
	}
	if len(arguments) > 1 {
		var err error
		if bytes, err = strconv.ParseInt(arguments[1], 10, 64); err != nil {
			return err
		}
	}
	bus, err := dbus.ConnectSessionBus()
	if err != nil {
		return err
	}
	defer bus.Close()

	// The type of each value is Go's: int64 is x, int would be i.
	userInfo := map[string]dbus.Variant{
		"bytes": dbus.MakeVariant(bytes),
		"clean": dbus.MakeVariant(true),
		"title": dbus.MakeVariant("Annual report — 2026"),
	}
	options := map[string]dbus.Variant{"retain": dbus.MakeVariant(true)}
	var receivers uint32
	err = bus.Object(center, "/org/carillon/NotificationCenter1").
		Call(center+".Post", 0, "com.example.Saved", object, userInfo, options).Store(&receivers)
	if err == nil {
		fmt.Println("reached", receivers)
	}
	return err
}
