// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Of linux/input-event-codes.h.
const (
	eventKey = 1
	keyPower = 116
)

// inputEvent is struct input_event of linux/input.h.
type inputEvent struct {
	Seconds, Microseconds uint64
	Type, Code            uint16
	Value                 int32
}

// obeyPowerButton from now on turns the machine off when its power button is pressed, as an
// operating system does, with operations still in flight.
func obeyPowerButton(p *port) {
	devices, _ := filepath.Glob("/dev/input/event*") // the pattern is a good one
	for _, device := range devices {
		f, err := os.Open(device)
		if err != nil {
			fmt.Fprintln(os.Stderr, "guest: open input device:", err)
			continue
		}
		go func() {
			if awaitPowerKey(f) != nil {
				return
			}
			p.silence()
			fmt.Fprintln(os.Stderr, "guest: power off:", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
		}()
	}
}

func awaitPowerKey(from io.Reader) error {
	for {
		var e inputEvent
		if err := binary.Read(from, binary.LittleEndian, &e); err != nil {
			return fmt.Errorf("read input device: %w", err)
		}
		if e.Type == eventKey && e.Code == keyPower && e.Value == 1 {
			return nil
		}
	}
}
