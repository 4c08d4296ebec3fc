// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
)

// machine is this machine in words: what of it may matter to a test. What it does not have is left
// out.
func machine() string {
	words := []string{fmt.Sprintf("%d processors", runtime.NumCPU())}
	for _, of := range []struct {
		name string
		tell []string
	}{
		{"Linux", []string{"uname", "-r"}},
		{"libvirt", []string{"libvirtd", "--version"}},
		{"QEMU", []string{"qemu-system-x86_64", "--version"}},
	} {
		out, err := exec.Command(of.tell[0], of.tell[1:]...).Output() //nolint:gosec,noctx // they are above, and answer at once
		if err != nil {
			continue
		}
		words = append(words, of.name+" "+firstNumber(string(out)))
	}
	return strings.Join(words, ", ")
}

// firstNumber is the first word of a text that begins with a digit.
func firstNumber(text string) string {
	for _, word := range strings.Fields(text) {
		if word[0] >= '0' && word[0] <= '9' {
			return word
		}
	}
	return ""
}
