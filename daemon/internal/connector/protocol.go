// SPDX-License-Identifier: Apache-2.0

// Package connector is the protocol of connectors: programs that make, look up, extend and delete
// the volumes of storage that libvirt cannot manage, or connect this host with them. One run of a
// program is one verb, with a JSON request on stdin and a JSON answer on stdout. The package does
// not check a program's answers; package pools does.
package connector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Protocol is the version of this protocol, in every request and answer.
const Protocol = 1

// A pool lists its verbs: VerbInspect, and with it VerbCreate and VerbDelete, or VerbConnect and
// VerbDisconnect, or all four.
const (
	// VerbInspect describes a volume or, without a volume, the pool. It changes nothing.
	VerbInspect = "inspect"
	VerbCreate  = "create"
	VerbExtend  = "extend"
	VerbDelete  = "delete"
	// VerbConnect makes the device of an existing volume on this host, and VerbDisconnect removes
	// it. Resources that several volumes share end with the last one.
	VerbConnect    = "connect"
	VerbDisconnect = "disconnect"
	// VerbCopy copies a range of another volume of the pool to the same range of a volume.
	VerbCopy = "copy"
)

// Verbs are all verbs, in the order of a volume's life.
var Verbs = []string{VerbInspect, VerbCreate, VerbConnect, VerbExtend, VerbCopy, VerbDisconnect, VerbDelete}

// Request is a request to a connector.
type Request struct {
	Protocol int    `json:"protocol"`
	Verb     string `json:"verb"`
	// OpID is the operation that makes the request, and repeats it; empty for inspect.
	OpID string `json:"op_id,omitempty"`
	Pool string `json:"pool"`
	// Options are the pool's options from the daemon's configuration.
	Options map[string]string `json:"options"`
	// Volume is empty for an inspection of the pool.
	Volume    string `json:"volume,omitempty"`
	SizeBytes int64  `json:"size_bytes,omitempty"`
	// Identity identifies the device that extend, copy, disconnect and delete must change. They
	// refuse another device with the same name (CodeChanged).
	Identity    string  `json:"identity,omitempty"`
	Source      *Source `json:"source,omitempty"`
	OffsetBytes int64   `json:"offset_bytes,omitempty"`
	LengthBytes int64   `json:"length_bytes,omitempty"`
}

// Source is the volume that a copy reads. It is in the same pool, has no writers, and has the
// destination's size.
type Source struct {
	Volume    string `json:"volume"`
	Identity  string `json:"identity"`
	SizeBytes int64  `json:"size_bytes"`
}

// Answer is a connector's answer: an error, or the result.
type Answer struct {
	Protocol int     `json:"protocol"`
	Pool     *Pool   `json:"pool,omitempty"`
	Volume   *Volume `json:"volume,omitempty"`
	// CopiedToBytes is the result of copy: from the request's offset to here the volume has the
	// bytes of the source.
	CopiedToBytes int64  `json:"copied_to_bytes,omitempty"`
	Error         *Error `json:"error,omitempty"`
}

// Pool is the answer of inspect without a volume.
type Pool struct {
	// Directory has the devices of the pool, each with the name of its volume. It is below /dev.
	Directory     string `json:"directory"`
	CapacityBytes int64  `json:"capacity_bytes"`
	FreeBytes     int64  `json:"free_bytes"`
	// GranularityBytes: every volume's size is a multiple of it.
	GranularityBytes int64    `json:"granularity_bytes"`
	Verbs            []string `json:"verbs"`
	// Warning is a problem for the operator; the pool can be used nevertheless.
	Warning string `json:"warning,omitempty"`
}

// Can reports whether the pool has a verb.
func (p Pool) Can(verb string) bool { return slices.Contains(p.Verbs, verb) }

// Volume is the answer of inspect with a volume, of create, of connect and of extend.
type Volume struct {
	Name string `json:"name"`
	// Path is the pool's Directory with Name.
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
	// Identity is the kernel's identity of the device: the UUID of a map, a WWID, a serial.
	Identity string `json:"identity"`
	// OpID is the op of the create that made the volume.
	OpID string `json:"op_id,omitempty"`
}

// The codes of errors.
const (
	// CodeProtocol: the connector does not know the protocol of the request.
	CodeProtocol = "protocol"
	// CodeInvalid: the request or the options of the pool make no sense.
	CodeInvalid = "invalid"
	// CodeNotFound: there is no such volume, or no such pool.
	CodeNotFound = "not_found"
	// CodeNotConnected: the volume has no device on this host until it is connected. Before that
	// it may be unknown whether the storage has it.
	CodeNotConnected = "not_connected"
	// CodeExists: another operation has made a volume of this name.
	CodeExists = "exists"
	// CodeChanged: the volume of this name is not the device of Identity.
	CodeChanged = "changed"
	// CodeInUse: a program has the volume open.
	CodeInUse = "in_use"
	// CodeBusy: another program works on the volume or pool; a later try may succeed.
	CodeBusy = "busy"
	// CodeNoSpace: the pool has no space for the volume.
	CodeNoSpace = "no_space"
	// CodeUnsupported: this pool cannot do the request.
	CodeUnsupported = "unsupported"
	// CodeUnavailable: the storage is not reachable, so its volumes are unknown.
	CodeUnavailable = "unavailable"
	// CodeFailed: anything else.
	CodeFailed = "failed"
)

// Codes are all codes.
var Codes = []string{CodeProtocol, CodeInvalid, CodeNotFound, CodeNotConnected, CodeExists, CodeChanged, CodeInUse, CodeBusy, CodeNoSpace, CodeUnsupported, CodeUnavailable, CodeFailed}

// Error is a connector's answer to a request that it refuses or cannot do.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an Error.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of a connector's error: CodeFailed if it has none, "" for nil.
func CodeOf(err error) string {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	}
	return CodeFailed
}

// maxMessageBytes bounds the message of an error, which a person reads.
const maxMessageBytes = 2 << 10

// ReadAnswer parses the answer to a request. It refuses an answer that is invalid for the verb,
// but does not check whether the answer is true. It returns an error in the answer as an *Error.
func ReadAnswer(in Request, text []byte) (Answer, error) {
	var out Answer
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&out); err != nil {
		return out, fmt.Errorf("the answer is no JSON object: %w", err)
	}
	if rest := bytes.TrimSpace(text[dec.InputOffset():]); len(rest) > 0 {
		return out, fmt.Errorf("behind the answer is more: %.80q", rest)
	}
	if out.Error != nil {
		// A program without the protocol does not know its number either.
		if !slices.Contains(Codes, out.Error.Code) {
			return out, fmt.Errorf("the error has the code %.40q, which there is not: %.200s", out.Error.Code, out.Error.Message)
		}
		if len(out.Error.Message) > maxMessageBytes {
			out.Error.Message = strings.ToValidUTF8(out.Error.Message[:maxMessageBytes], "") + "…"
		}
		return out, out.Error
	}
	switch {
	case out.Protocol != Protocol:
		return out, fmt.Errorf("the answer is of protocol %d, want %d", out.Protocol, Protocol)
	case in.Verb == VerbInspect && in.Volume == "" && out.Pool == nil:
		return out, errors.New(`the answer has neither "pool" nor "error"`)
	case in.Verb == VerbCopy:
		if in.Source != nil && (out.CopiedToBytes <= in.OffsetBytes || out.CopiedToBytes > in.Source.SizeBytes) {
			return out, fmt.Errorf("it says that it has copied to byte %d, and was asked for %d bytes from %d on, of %d", out.CopiedToBytes, in.LengthBytes, in.OffsetBytes, in.Source.SizeBytes)
		}
	case in.Verb != VerbDelete && in.Verb != VerbDisconnect && in.Volume != "" && out.Volume == nil:
		return out, errors.New(`the answer has neither "volume" nor "error"`)
	}
	return out, nil
}

var word = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// CheckName refuses a connector's name that could be a path, or an option of a command.
func CheckName(name string) error {
	if !word.MatchString(name) {
		return fmt.Errorf("%.60q is no name of a connector: it has small letters, digits and dashes, 32 at the most", name)
	}
	return nil
}

var volumeName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,126}$`)

// CheckVolumeName refuses a volume name that no connector may get.
func CheckVolumeName(name string) error {
	if !volumeName.MatchString(name) {
		return fmt.Errorf("%.140q is no name of a volume of a connector: it has letters, digits, and _ . + - behind the first, 127 at the most", name)
	}
	return nil
}
