// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/volferry/volferry/daemon/internal/child"
	"github.com/volferry/volferry/daemon/internal/storagedaemon"
)

const maxOutputBytes = 16 << 10

type childOptions struct {
	progress func(fraction float64) // optional; the arguments have -p
	files    []*os.File             // optional; the arguments name them by childFile
	written  []int                  // indexes of files, open for reading, that the child writes
	// passphrase, if not nil, is the key keyID in the arguments, which the child gets only through
	// an open file.
	passphrase []byte
}

// childFile is a child's name for an inherited open file. The child opens the very file by this
// name, whatever is at the file's path meanwhile.
func childFile(number int) string { return child.FileName(number) }

func inOurWords(text string, files []*os.File) string {
	for i, f := range slices.Backward(files) {
		text = strings.ReplaceAll(text, childFile(i), f.Name())
	}
	return text
}

// run runs qemu-img to its end and returns its stdout. The child is killed when ctx ends, and by
// the kernel when this process dies. The error is the cause of ctx if ctx has ended, else a
// *CommandError.
func run(ctx context.Context, args []string, opts childOptions) (string, error) {
	if opts.passphrase != nil {
		key, err := storagedaemon.SecretFile(opts.passphrase)
		if err != nil {
			return "", err
		}
		defer func() { _ = key.Close() }()
		args = withKey(args, childFile(len(opts.files)))
		opts.files = append(slices.Clone(opts.files), key)
	}
	stdout := &outputTail{report: opts.progress}
	stderr := &outputTail{}
	err := child.Run(ctx, starter(), child.Command{
		Program: Program, Args: args, Env: childEnvironment(), Files: opts.files, Written: opts.written, Stdout: stdout, Stderr: stderr,
		DeathSignal: syscall.SIGKILL, Confine: confine,
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		err = &CommandError{Verb: args[0], Stderr: inOurWords(string(stderr.kept), opts.files), Err: err}
	}
	return string(stdout.kept), err
}

// outputTail keeps the end of a stream, and reports the progress lines of qemu-img -p: "
// (12.34/100%)\r".
type outputTail struct {
	report func(fraction float64)
	kept   []byte
}

func (o *outputTail) Write(p []byte) (int, error) {
	o.kept = append(o.kept, p...)
	if len(o.kept) > maxOutputBytes {
		o.kept = o.kept[len(o.kept)-maxOutputBytes:]
	}
	if o.report != nil {
		if fraction, ok := lastPercent(o.kept); ok {
			o.report(fraction)
		}
	}
	return len(p), nil
}

func lastPercent(out []byte) (fraction float64, ok bool) {
	end := bytes.LastIndex(out, []byte("/100%)"))
	if end < 0 {
		return 0, false
	}
	start := bytes.LastIndexByte(out[:end], '(')
	if start < 0 {
		return 0, false
	}
	percent, err := strconv.ParseFloat(string(out[start+1:end]), 64)
	return percent / 100, err == nil
}
