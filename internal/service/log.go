// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
)

// NewLogger returns a logger that writes to w from level (debug, info, warn or error) on.
// It writes no time if w is the journal, which adds its own.
func NewLogger(w io.Writer, level string) (*slog.Logger, error) {
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
	}
	return slog.New(slog.NewTextHandler(w, options)), nil
}

// isJournal says whether w is the stream that systemd connected to the
// journal. The variable alone does not say it: children inherit it.
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
