// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
)

// narrator tells the person in front of the screen what happens.
type narrator struct {
	out *os.File // volferryctl draws a bar if it is a terminal
}

// heading begins a part.
func (n *narrator) heading(text string) { n.say("\n=== %s\n", text) }

// say tells one thing, in a line or a few.
func (n *narrator) say(format string, args ...any) { fmt.Fprintf(n.out, format+"\n", args...) }

// prompt shows a command as a person would type it.
func (n *narrator) prompt(args []string) {
	n.say("\n$ volferryctl %s", strings.Join(args, " "))
}
