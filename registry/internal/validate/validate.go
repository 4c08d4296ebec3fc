// SPDX-License-Identifier: Apache-2.0

// Package validate checks the syntax of callers' input: names, texts for users, ids, locations,
// whole reports. Its errors are invalid_argument. Package store has the rules that depend on the
// contents of the registry.
package validate

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// Bounds of texts, in bytes.
const (
	// MaxText bounds texts that the registry does not interpret: names that libvirt chose,
	// versions, words of the audit trail.
	MaxText = 255
	// MaxPath is the kernel's PATH_MAX without the final NUL.
	MaxPath = 4095
	// MaxLocation bounds a location with its base images, in bytes of JSON.
	MaxLocation = 64 << 10
	sectorBytes = 512
)

var (
	nameRule   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$`)
	deviceRule = regexp.MustCompile(`^[a-z]{2,4}[a-z0-9]{0,12}$`)
)

// Invalid returns an invalid_argument error.
func Invalid(format string, args ...any) error {
	return api.Errorf(api.CodeInvalidArgument, format, args...)
}

// Name checks a name that a user of Volferry chooses, for a volume or a type. It must not be a
// possible beginning of an id, because users type those instead of names.
func Name(what, name string) error {
	if api.MayBeginID(name) {
		return Invalid("the %s %s is not allowed: an id may begin so; choose a name that also has a character that is not one of 0 to 9 and a to f", what, Quote(name))
	}
	return plainName(what, name)
}

func plainName(what, name string) error {
	if !nameRule.MatchString(name) {
		return Invalid("the %s %s is not allowed: it must begin with a letter or digit, go on with letters, digits, dots, underscores and hyphens, and have at most 255 characters", what, Quote(name))
	}
	return nil
}

// Text requires that a text that no user of Volferry chose is printable and short.
func Text(what, text string) error {
	if len(text) > MaxText {
		return Invalid("the %s %s is not allowed: it is longer than %d bytes", what, Quote(text), MaxText)
	}
	return Printable(what, text)
}

// Required is Text, and also refuses an empty text.
func Required(what, text string) error {
	if text == "" {
		return Invalid("the %s is missing", what)
	}
	return Text(what, text)
}

// Word is Text, and also refuses a leading hyphen. In a command that operators copy, a hyphen
// would begin an option.
func Word(what, text string) error {
	if strings.HasPrefix(text, "-") {
		return Invalid("the %s %s is not allowed: it begins with a hyphen, and commands would take it for an option; give it another name first", what, Quote(text))
	}
	return Text(what, text)
}

// Printable refuses invalid UTF-8 and characters that could harm a terminal.
func Printable(what, text string) error {
	if !utf8.ValidString(text) {
		return Invalid("the %s %s is not allowed: it is not UTF-8", what, Quote(text))
	}
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Invalid("the %s %s is not allowed: it has a character that cannot be printed", what, Quote(text))
	}
	return nil
}

// ID requires a UUID in lower case.
func ID(what, id string) error {
	u, err := uuid.Parse(id)
	if err != nil || u.String() != id {
		return Invalid("the %s %s is not a UUID in lower case", what, Quote(id))
	}
	return nil
}

// Device checks the device name of a guest's disk.
func Device(device string) error {
	if !deviceRule.MatchString(device) {
		return Invalid("the device %s is not allowed: it must be a name like vda", Quote(device))
	}
	return nil
}

// Disk checks the mode of a disk. Its device may be chosen later.
func Disk(d api.DiskAttachment) error {
	if !d.Mode.Valid() {
		return Invalid("the mode %s of disk %s is not one of rw and ro", Quote(string(d.Mode)), d.Device)
	}
	return nil
}

// InstanceState checks the stored state of an instance. A guest that is asleep or has crashed is
// stored as paused.
func InstanceState(s api.InstanceState) error {
	switch s {
	case api.InstanceRunning, api.InstancePaused, api.InstanceStopped, api.InstanceShelved, api.InstanceShelvedOffloaded, api.InstanceError:
		return nil
	case api.InstanceAsleep, api.InstanceCrashed:
	}
	return Invalid("%s is no state of an instance", Quote(string(s)))
}

// MaxNote bounds a host's note about an instance, in characters.
const MaxNote = 1000

// InstanceNote checks a host's note about an instance.
func InstanceNote(note string) error {
	if utf8.RuneCountInString(note) > MaxNote {
		return Invalid("the note of an instance is longer than %d characters", MaxNote)
	}
	return Printable("note of an instance", note)
}

// maxEvidence bounds an operator's evidence, in characters.
const maxEvidence = 1000

// Evidence checks an operator's evidence, a text for the audit trail.
func Evidence(what, text string) error {
	if utf8.RuneCountInString(text) > maxEvidence {
		return Invalid("the %s is longer than %d characters", what, maxEvidence)
	}
	if err := Printable(what, text); err != nil {
		return err
	}
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsSpace(r) }) {
		return Invalid("the %s is missing; say how it is known, the audit trail keeps it", what)
	}
	return nil
}

// Location checks the present or future location of a volume. An empty path with a pool and a name
// means that the image is still to be made.
func Location(what string, l api.Location) error {
	if err := Word("pool of the "+what, l.Pool); err != nil {
		return err
	}
	if err := Word("name in the pool of the "+what, l.Name); err != nil {
		return err
	}
	switch kind := medium.Of(l.Path); {
	case l.Path == "" && (l.Pool == "" || l.Name == ""):
		return Invalid("the %s has neither a path nor a pool with a name", what)
	case l.Path == "":
	case len(l.Path) > MaxPath:
		return Invalid("the path of the %s is longer than %d bytes", what, MaxPath)
	case !kind.Path:
		if err := addressLocation(what, kind, l); err != nil {
			return err
		}
	case !filepath.IsAbs(l.Path) || filepath.Clean(l.Path) != l.Path || l.Path == "/":
		return Invalid("the path %s of the %s is not a clean absolute path", Quote(l.Path), what)
	}
	if err := Printable("path of the "+what, l.Path); err != nil {
		return err
	}
	if !l.Format.Valid() {
		return Invalid("the format %s of the %s is not one of raw and qcow2", Quote(string(l.Format)), what)
	}
	if l.SizeBytes <= 0 || l.SizeBytes%sectorBytes != 0 {
		return Invalid("the size %d of the %s is not a positive multiple of %d bytes", l.SizeBytes, what, sectorBytes)
	}
	if l.IsSlice() && (l.Format != api.FormatRaw || l.ImageBytes <= l.SizeBytes) {
		return Invalid("the %s is %s of %d bytes and said to be the beginning of %d bytes; only a raw volume can be that of something larger", what, l.Format, l.SizeBytes, l.ImageBytes)
	}
	return cmp.Or(luks(what, l), backing(what, l), Identity("identity of the "+what, l.Identity), locationBytes(what, l))
}

// locationBytes bounds a location: each event and answer about it has a copy.
func locationBytes(what string, l api.Location) error {
	if l.Backing == "" {
		return nil // the other texts have smaller bounds
	}
	b, err := json.Marshal(l)
	if err != nil {
		return Invalid("the %s cannot be written as JSON: %v", what, err)
	}
	if len(b) > MaxLocation {
		return Invalid("the %s with its base images has %d bytes as JSON and may have %d", what, len(b), MaxLocation)
	}
	return nil
}

// maxIdentity bounds a device's identity, in bytes: the identity of a loop device has the path of
// its file.
const maxIdentity = 2 * MaxPath

// Identity checks the identity of a device.
func Identity(what, identity string) error {
	if len(identity) > maxIdentity {
		return Invalid("the %s is longer than %d bytes", what, maxIdentity)
	}
	return Printable(what, identity)
}

// luks checks the secret of a location that QEMU encrypts.
func luks(what string, l api.Location) error {
	if !l.IsLUKS() {
		return nil
	}
	if l.Format != api.FormatRaw || l.IsSlice() || medium.Of(l.Path).Raw {
		return Invalid("the %s is said to be a LUKS container, which only all of a raw file or device can be", what)
	}
	return ID("LUKS secret of the "+what, l.LUKSSecret)
}

func addressLocation(what string, kind medium.Kind, l api.Location) error {
	if err := kind.Check(l.Path); err != nil {
		return err
	}
	if l.Pool != "" || kind.Raw && l.Format != api.FormatRaw {
		return Invalid("the %s is %s, which is in no pool and raw", what, kind.Name)
	}
	return nil
}

// Bounds of an error from a daemon, in bytes.
const (
	// MaxErrorMessage is far above the longest message of a daemon, including output of qemu-img.
	MaxErrorMessage = 16 << 10
	// MaxErrorDetails bounds the error's details as JSON.
	MaxErrorDetails = 16 << 10
)

// Error checks an error from a daemon; nil is valid. Its text may come from another program: see
// ReportedError.
func Error(what string, e *api.Error) error {
	if e == nil {
		return nil
	}
	if err := Text("code of the "+what, string(e.Code)); err != nil {
		return err
	}
	if len(e.Message) > MaxErrorMessage {
		return Invalid("the %s is longer than %d bytes", what, MaxErrorMessage)
	}
	details, err := json.Marshal(e.Details)
	if err != nil {
		return Invalid("the details of the %s cannot be written as JSON: %v", what, err)
	}
	if len(details) > MaxErrorDetails {
		return Invalid("the details of the %s have %d bytes as JSON and may have %d", what, len(details), MaxErrorDetails)
	}
	return nil
}

// Quote returns the beginning of an untrusted text in quotes.
func Quote(text string) string { return `"` + Clip(text) + `"` }

// Clip is Quote without the quotes.
func Clip(text string) string {
	const enough = 64
	return ClipTo(enough, text)
}

// ClipTo truncates an untrusted text to enough bytes, and replaces unprintable characters by
// U+FFFD.
func ClipTo(enough int, text string) string {
	if len(text) > enough {
		text = text[:enough] + "…"
	}
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, text), "\uFFFD")
}

// maxBacking bounds the number of base images of a clone: QEMU has no longer chains.
const maxBacking = 200

func backing(what string, l api.Location) error {
	images := l.Backing.Images()
	switch {
	case len(images) == 0:
		return nil
	case l.Format != api.FormatQcow2:
		return Invalid("the %s has base images, which only one of format qcow2 can have", what)
	case len(images) > maxBacking:
		return Invalid("the %s has more than %d base images", what, maxBacking)
	}
	for _, img := range images {
		below := api.Location{Path: img.Path, Format: img.Format, SizeBytes: l.SizeBytes}
		if err := Location("base image of the "+what, below); err != nil {
			return err
		}
	}
	return nil
}
