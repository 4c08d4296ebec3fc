// SPDX-License-Identifier: Apache-2.0

package storagedaemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/volferry/volferry/daemon/internal/child"
)

// EndedError means that the server ended before it served the image. It has the server's last
// output.
type EndedError struct{ Said string }

func (e *EndedError) Error() string { return Program + ": " + e.Said }

// Find returns the path of the server, or an error if it is not installed.
func Find() (string, error) { return exec.LookPath(Program) }

const endTimeout = 10 * time.Second

const shownBytes = 512

type process struct {
	child.Process

	stderr tail
}

// tail stores the end of a server's output. A server may run for days, and storage libraries print
// much before the reason of its end.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - 4*shownBytes; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

func start(ctx context.Context, image Image, listening *os.File) (*process, error) {
	p := new(process)
	begin := image.Start
	if begin == nil {
		begin = child.Start
	}
	var err error
	p.Process, err = begin(ctx, image.command(listening, &p.stderr))
	return p, err
}

// end makes the server release the image. If the server does not, for example because its storage
// is unavailable, end kills it.
func (p *process) end() error {
	p.Signal(syscall.SIGTERM)
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case <-p.Ended():
		return nil
	case <-timer.C:
	}
	p.Signal(syscall.SIGKILL)
	<-p.Ended()
	return fmt.Errorf("%s did not let go of the image within %v, and was killed", Program, endTimeout)
}

func (p *process) said() error {
	<-p.Ended()
	text := OneLine(string(p.stderr.text))
	if at := strings.LastIndex(text, "}: "); at >= 0 { // the reason follows the arguments that the program repeats
		text = text[at+len("}: "):]
	}
	if text == "" && p.Err() != nil {
		text = p.Err().Error()
	}
	return &EndedError{text}
}

// OneLine returns the end of a program's output without line breaks.
func OneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > shownBytes {
		text = "…" + strings.ToValidUTF8(text[len(text)-shownBytes:], "")
	}
	return text
}
