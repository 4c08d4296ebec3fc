// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/journal"
)

// fieldPrefix begins this program's fields in the journal: VOLFERRY_MIGRATION, VOLFERRY_OP.
const fieldPrefix = "VOLFERRY_"

// journalHandler sends each record to systemd's journal. The message is the line of a text
// handler. The attributes are also fields, for searches. If the journal refuses a record, the
// handler writes the line to the program's log stream, without fields.
type journalHandler struct {
	text   slog.Handler // writes to line
	prefix string       // of the open groups
	fields []field

	shared *journalLine
}

type journalLine struct {
	mu     sync.Mutex
	line   bytes.Buffer
	stream io.Writer
	send   sendRecord
}

type sendRecord func(message string, priority journal.Priority, fields map[string]string) error

type field struct{ name, value string }

func newJournalHandler(stream io.Writer, options *slog.HandlerOptions, send sendRecord) slog.Handler {
	shared := &journalLine{stream: stream, send: send}
	return &journalHandler{text: slog.NewTextHandler(&shared.line, options), shared: shared}
}

func (h *journalHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.text.Enabled(ctx, level)
}

func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.text = h.text.WithAttrs(attrs)
	with.fields = slices.Clip(h.fields)
	for _, a := range attrs {
		with.fields = appendField(with.fields, h.prefix, a)
	}
	return &with
}

func (h *journalHandler) WithGroup(name string) slog.Handler {
	with := *h
	with.text = h.text.WithGroup(name)
	with.prefix = h.prefix + name + "_"
	return &with
}

func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	fields := make(map[string]string)
	for _, f := range h.fields {
		fields[f.name] = f.value
	}
	r.Attrs(func(a slog.Attr) bool {
		for _, f := range appendField(nil, h.prefix, a) {
			fields[f.name] = f.value
		}
		return true
	})
	s := h.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line.Reset()
	if err := h.text.Handle(ctx, r); err != nil {
		return err
	}
	if s.send(strings.TrimSuffix(s.line.String(), "\n"), priorityOf(r.Level), fields) == nil {
		return nil
	}
	_, err := s.stream.Write(s.line.Bytes())
	return err
}

func appendField(fields []field, prefix string, a slog.Attr) []field {
	value := a.Value.Resolve()
	if value.Kind() != slog.KindGroup {
		return append(fields, field{fieldName(prefix + a.Key), value.String()})
	}
	if a.Key != "" {
		prefix += a.Key + "_"
	}
	for _, member := range value.Group() {
		fields = appendField(fields, prefix, member)
	}
	return fields
}

// maxFieldName is the journal's limit for names of fields.
const maxFieldName = 64

func fieldName(key string) string {
	name := fieldPrefix + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
	return name[:min(len(name), maxFieldName)]
}

func priorityOf(level slog.Level) journal.Priority {
	switch {
	case level >= slog.LevelError:
		return journal.PriErr
	case level >= slog.LevelWarn:
		return journal.PriWarning
	case level >= slog.LevelInfo:
		return journal.PriInfo
	}
	return journal.PriDebug
}
