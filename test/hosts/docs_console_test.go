// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"io"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/volferry/volferry/test/machine"
)

// console is somebody at the serial console of a guest, by a command that needs a terminal.
type console struct {
	cmd  *exec.Cmd
	keys io.WriteCloser
	said chan string
	text string // that nobody has waited for yet
}

// consoleTimeout bounds what a guest under TCG takes to answer, a boot among it.
const consoleTimeout = 5 * time.Minute

// knockEvery is how often somebody presses a key who sees nothing.
const knockEvery = 2 * time.Second

// openConsole runs a command with a terminal in a machine.
func openConsole(ctx context.Context, t *testing.T, m *machine.Machine, command string) *console {
	t.Helper()
	c := &console{cmd: m.Command(ctx, "script", "--quiet", "--return", "--command", command, "/dev/null"), said: make(chan string)}
	keys, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.keys = keys
	go func() {
		defer close(c.said)
		buffer := make([]byte, 4096)
		for {
			n, err := out.Read(buffer)
			if n > 0 {
				c.said <- string(buffer[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	return c
}

// press sends keys.
func (c *console) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := io.WriteString(c.keys, keys); err != nil {
		t.Fatal(err)
	}
}

// wait returns the submatches of what the guest will have said.
func (c *console) wait(t *testing.T, pattern string) []string {
	t.Helper()
	return c.knock(t, "", pattern)
}

// knock presses keys now and then until the guest says something: virsh may have thrown
// away what was pressed before it was ready.
func (c *console) knock(t *testing.T, keys, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	expired := time.After(consoleTimeout)
	again := time.NewTicker(knockEvery)
	defer again.Stop()
	for {
		if m := re.FindStringSubmatchIndex(c.text); m != nil {
			found := re.FindStringSubmatch(c.text)
			c.text = c.text[m[1]:]
			return found
		}
		select {
		case s, ok := <-c.said:
			if !ok {
				t.Fatalf("the console has ended; waiting for %q, it said %q", pattern, c.text)
			}
			c.text += s
		case <-again.C:
			c.press(t, keys)
		case <-expired:
			t.Fatalf("waiting for %q, the console said %q", pattern, c.text)
		}
	}
}

// prompt ends what a shell of root says.
const prompt = `root@\S+:~# `

// login logs in as root, and returns with the prompt of the shell.
func (c *console) login(t *testing.T) {
	t.Helper()
	c.wait(t, `login: `)
	c.press(t, "root\r")
	c.wait(t, prompt)
}

// line types a line and returns the submatches of what the guest says then, before its
// next prompt.
func (c *console) line(t *testing.T, text, pattern string) []string {
	t.Helper()
	c.press(t, text+"\r")
	found := c.wait(t, pattern)
	c.wait(t, prompt)
	return found
}

// leave presses Ctrl-], which ends the command, and not the guest.
func (c *console) leave(t *testing.T) {
	t.Helper()
	c.press(t, "\x1d")
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
}

// end returns when the command has ended, with how it did.
func (c *console) end() error {
	for range c.said {
	}
	return c.cmd.Wait()
}
