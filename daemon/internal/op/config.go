// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"log/slog"
	"time"
)

// Config is the configuration of a Runner. Journal is required.
type Config struct {
	Journal Journal
	// Describe converts an error to the Failure for journal and user. Default: code "internal" and
	// the error's text.
	Describe func(error) Failure
	// Log gets one line for each record and each failed try. Default: no logging.
	Log *slog.Logger
	// FaultPoint is called with KIND.STEP.MOMENT at each moment of a step, and with KIND.finished,
	// so that a test can end the process there. It need not return.
	FaultPoint func(name string)
	// MakeDurable is called before each record that a step has succeeded or is undone. It syncs
	// the step's effects that other programs have made: a program that renames a file does not
	// sync the directory. If it fails, the record counts as refused by the journal. Default: does
	// nothing.
	MakeDurable func() error
	// Context derives the context of an op's steps, for callees that need the op's id. Default:
	// adds nothing.
	Context func(ctx context.Context, opID string) context.Context
	// MaxTries limits the tries of a step that returns Retry, of a step after the commit point,
	// and of Observe. The count restarts with the daemon and at Continue. Default 20.
	MaxTries int
	// WaitPoll is how often a waiting step is tried without a Wake. Default 5 s.
	WaitPoll time.Duration
	// Now stamps records. No decision depends on it. Default time.Now.
	Now func() time.Time
}

const (
	defaultMaxTries = 20
	defaultWaitPoll = 5 * time.Second
)

func (c Config) withDefaults() Config {
	if c.Describe == nil {
		c.Describe = func(err error) Failure { return Failure{Code: "internal", Message: err.Error()} }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.FaultPoint == nil {
		c.FaultPoint = func(string) {}
	}
	if c.MakeDurable == nil {
		c.MakeDurable = func() error { return nil }
	}
	if c.Context == nil {
		c.Context = func(ctx context.Context, _ string) context.Context { return ctx }
	}
	if c.MaxTries <= 0 {
		c.MaxTries = defaultMaxTries
	}
	if c.WaitPoll <= 0 {
		c.WaitPoll = defaultWaitPoll
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}
