// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"

	"github.com/coreos/go-systemd/v22/journal"
)

// NewLogger returns a logger that writes to w from this level on: debug, info, warn or error. In
// the journal, records have no time, since the journal adds it.
func NewLogger(w io.Writer, level string) (*slog.Logger, error) {
	return newLogger(w, level, journal.Send)
}

func newLogger(w io.Writer, level string, send sendRecord) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("the log level %q is none of debug, info, warn and error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	if isJournal(w) {
		options.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
		return slog.New(newJournalHandler(w, options, send)), nil
	}
	return slog.New(slog.NewTextHandler(w, options)), nil
}

// isJournal reports whether w is the stream that systemd connected to the journal. Children
// inherit JOURNAL_STREAM, so the file must match too.
func isJournal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}
