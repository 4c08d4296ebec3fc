// SPDX-License-Identifier: Apache-2.0

package cmdline

import (
	"errors"
	"math/big"
	"regexp"
	"strings"

	"github.com/volferry/volferry/internal/api"
)

// sizeUnits lacks "G" and "GB", which may mean powers of 1000.
var sizeUnits = map[string]int64{
	"":    1,
	"B":   1,
	"KiB": 1 << 10,
	"MiB": 1 << 20,
	"GiB": 1 << 30,
	"TiB": 1 << 40,
	"PiB": 1 << 50,
}

// parseSize parses --size: 20GiB, 1.5GiB, 512MiB or plain bytes, above zero and whole.
func parseSize(text string) (int64, error) {
	if ambiguous.MatchString(text) {
		return 0, Usagef("--size %q may mean powers of 1000 or of 1024: write %siB, which are powers of 1024, or the number of bytes", text, strings.TrimSuffix(text, "B"))
	}
	n, err := parseBytes(text)
	switch {
	case errors.Is(err, errNoQuantity):
		return 0, Usagef("--size %q is not a size: write for example 20GiB, 512MiB or 1073741824 (bytes)", text)
	case err != nil:
		return 0, Usagef("--size %q %w; write for example 20GiB, 512MiB or 1073741824 (bytes)", text, err)
	case n == 0:
		return 0, Usagef("--size %q: a disk cannot be empty; write for example 20GiB", text)
	}
	return n, nil
}

var ambiguous = regexp.MustCompile(`^[0-9.]+[KMGTP]B?$`)

// minPlausibleSize is the smallest plausible size of a disk. A smaller one probably lacks its
// unit.
const minPlausibleSize = 1 << 20

// ParseDiskSize parses --size of a disk, in bytes: a multiple of api.SectorBytes.
func ParseDiskSize(text string) (int64, error) {
	n, err := parseSize(text)
	if err != nil || n%api.SectorBytes == 0 {
		return n, err
	}
	hint := ""
	if number := strings.TrimSuffix(text, "B"); n < minPlausibleSize && strings.Trim(number, "0123456789") == "" {
		hint = "; did you mean --size " + number + "GiB?"
	}
	return 0, Usagef("size %d bytes: it must be a multiple of %d bytes%s", n, api.SectorBytes, hint)
}

// ParseQuantity parses a decimal number with a unit exactly, without floating point.
func ParseQuantity(text string) (int64, bool) {
	n, err := parseBytes(text)
	return n, err == nil
}

var (
	errNoQuantity = errors.New("is not a number of bytes")
	errFraction   = errors.New("is not a whole number of bytes")
	errTooLarge   = errors.New("is more than 8 EiB, which is more than any disk has")
)

func parseBytes(text string) (int64, error) {
	digits := strings.TrimRight(text, "BKMGTPi")
	unit, known := sizeUnits[text[len(digits):]]
	if !known || digits == "" || strings.Trim(digits, "0123456789.") != "" || len(digits) > 30 {
		return 0, errNoQuantity
	}
	n, ok := new(big.Rat).SetString(digits)
	if !ok {
		return 0, errNoQuantity
	}
	n.Mul(n, new(big.Rat).SetInt64(unit))
	switch {
	case !n.IsInt():
		return 0, errFraction
	case !n.Num().IsInt64():
		return 0, errTooLarge
	}
	return n.Num().Int64(), nil
}
