// SPDX-License-Identifier: Apache-2.0

// Package fault ends the process at named points, for tests of crashes. Two environment variables
// control it; without them a point costs a comparison with nil.
//
//	VOLFERRY_FAULT="start.overlay.after_do=kill,switch.pivot.after_do=kill@2"
//
// makes the process send SIGKILL to itself the first time that it passes the first point, or the
// second time that it passes the other.
//
//	VOLFERRY_FAULT_LOG=/tmp/points
//
// appends the name of each passed point to a file, one per line, so that a test can list the
// points.
package fault

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// The environment variables that control this package.
const (
	// EnvPoints holds NAME=kill or NAME=kill@N, separated by commas.
	EnvPoints = "VOLFERRY_FAULT"
	// EnvLog holds the path of the file for the names of points.
	EnvLog = "VOLFERRY_FAULT_LOG"
)

var armed = arm(os.Getenv(EnvPoints), os.Getenv(EnvLog))

type points struct {
	mu     sync.Mutex
	killAt map[string]int // by name, the pass that kills
	passed map[string]int
	log    string
	die    func()
}

// Point is called where a test may kill the process. In that case it does not return.
func Point(name string) {
	if armed != nil {
		armed.pass(name)
	}
}

// arm returns the points of the variables VOLFERRY_FAULT (spec) and VOLFERRY_FAULT_LOG (log), nil
// if both are empty. It prints errors to stderr: a test with wrong variables must not look like a
// success.
func arm(spec, log string) *points {
	if spec == "" && log == "" {
		return nil
	}
	killAt, err := parse(spec)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", EnvPoints, err)
	}
	return &points{killAt: killAt, passed: map[string]int{}, log: log, die: killSelf}
}

func parse(spec string) (map[string]int, error) {
	killAt := map[string]int{}
	for entry := range strings.SplitSeq(spec, ",") {
		if entry == "" {
			continue
		}
		name, action, _ := strings.Cut(entry, "=")
		action, pass, counted := strings.Cut(action, "@")
		n := 1
		if counted {
			var err error
			if n, err = strconv.Atoi(pass); err != nil || n < 1 {
				return nil, fmt.Errorf("%q: a pass is a number from 1", entry)
			}
		}
		if name == "" || action != "kill" {
			return nil, fmt.Errorf("%q: it should read NAME=kill or NAME=kill@N", entry)
		}
		killAt[name] = n
	}
	return killAt, nil
}

// pass counts a pass of a point, and kills the process if required. It holds the lock to the end:
// while the process dies, no other goroutine passes a point.
func (p *points) pass(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed[name]++
	if p.log != "" {
		if err := appendLine(p.log, name); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", EnvLog, err)
		}
	}
	if n, ok := p.killAt[name]; ok && p.passed[name] == n {
		p.die()
	}
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(line + "\n"); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// killSelf does not return: the signal may take a moment to arrive.
func killSelf() {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", EnvPoints, err)
	}
	select {}
}
