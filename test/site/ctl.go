// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/machine"
)

// CtlError is a volferryctl that did not exit with 0.
type CtlError struct {
	Args   []string
	Exit   int
	Stdout string
	Stderr string
}

func (e *CtlError) Error() string {
	return fmt.Sprintf("volferryctl %s: exit status %d\n%s%s", strings.Join(e.Args, " "), e.Exit, e.Stdout, e.Stderr)
}

// Caller is a user of volferryctl at one socket. Its methods may be called from
// any goroutine.
type Caller struct {
	Socket string

	bin string
	// command runs volferryctl elsewhere than beside the test, if it is set.
	command func(ctx context.Context, program string, args ...string) *exec.Cmd
}

// In is a user in a machine, at a socket of it, with the volferryctl that is installed
// there.
func In(m *machine.Machine, socket string) Caller {
	return Caller{Socket: socket, command: m.Command}
}

// ctlTimeout bounds one command; guests under TCG are slow.
const ctlTimeout = 5 * time.Minute

// Ctl runs volferryctl and returns its standard output. The error is a
// *CtlError if it did not exit with 0.
func (c Caller) Ctl(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	err := c.runCtl(ctx, &stdout, &stderr, args)
	var failed *CtlError
	if errors.As(err, &failed) {
		failed.Stdout, failed.Stderr = stdout.String(), stderr.String()
	}
	return stdout.String(), err
}

// CtlTo runs volferryctl with all that it prints going to out as it comes. The
// error is a *CtlError, without that output, if it did not exit with 0.
func (c Caller) CtlTo(ctx context.Context, out io.Writer, args ...string) error {
	return c.runCtl(ctx, out, out, args)
}

func (c Caller) runCtl(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, lab.Limit(ctlTimeout))
	defer cancel()
	program, at := "volferryctl", append([]string{"--socket", c.Socket}, args...)
	var cmd *exec.Cmd
	if c.command != nil {
		cmd = c.command(ctx, program, at...)
	} else {
		cmd = exec.CommandContext(ctx, filepath.Join(c.bin, program), at...)
		cmd.SysProcAttr = child()
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return &CtlError{Args: args, Exit: exit.ExitCode()}
	}
	return err
}

// Get runs volferryctl -o json and decodes what is under the noun.
func Get[T any](ctx context.Context, c Caller, noun string, args ...string) (T, error) {
	var value T
	out, err := c.Ctl(ctx, append([]string{"-o", "json"}, args...)...)
	if err != nil {
		return value, err
	}
	var document map[string]json.RawMessage
	if err := json.Unmarshal([]byte(out), &document); err != nil {
		return value, fmt.Errorf("volferryctl %s: %w in %s", strings.Join(args, " "), err, out)
	}
	if err := json.Unmarshal(document[noun], &value); err != nil {
		return value, fmt.Errorf("volferryctl %s: no %s: %w in %s", strings.Join(args, " "), noun, err, out)
	}
	return value, nil
}

// Migration reads a migration by its id.
func (c Caller) Migration(ctx context.Context, id string) (api.Migration, error) {
	return Get[api.Migration](ctx, c, "migration", "migration", "show", id)
}
