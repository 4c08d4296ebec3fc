// SPDX-License-Identifier: Apache-2.0

package cmdline

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/humanize"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"20GiB":               20 << 30,
		"512MiB":              512 << 20,
		"1.5GiB":              3 << 29,
		"1073741824":          1 << 30,
		"512B":                512,
		"0.5KiB":              512,
		"2TiB":                2 << 40,
		"1PiB":                1 << 50,
		"9223372036854775807": 1<<63 - 1,
	} {
		got, err := parseSize(text)
		if err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestNonsenseSizesAreUsageErrorsWithAnExample(t *testing.T) {
	for _, text := range []string{
		"", "0", "-1", "+1", "20G", "20GB", "20 GiB", "20gib", "GiB", "1e9", "0x10", "1/2", "1..5GiB", ".", "0.3B", "1.0000001KiB",
		"9223372036854775808", "9000000TiB", "20GiB/s", "infGiB", "1_000", "٣GiB", strings.Repeat("9", 5000),
	} {
		_, err := parseSize(text)
		var usage *UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), "20GiB") || !strings.Contains(err.Error(), "--size") {
			t.Errorf("parseSize(%q) error = %v, want a usage error that names the flag and shows 20GiB", text, err)
		}
	}
}

func TestARefusedSizeSaysWhy(t *testing.T) {
	for text, why := range map[string]string{
		"1.3GiB": "is not a whole number of bytes", "9000000TiB": "is more than 8 EiB", "20GB": "may mean powers of 1000 or of 1024: write 20GiB", "0": "cannot be empty",
	} {
		if _, err := parseSize(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", text, err, why)
		}
	}
}

func TestDiskHasWholeSectors(t *testing.T) {
	for text, want := range map[string]string{
		"40":      "size 40 bytes: it must be a multiple of 512 bytes; did you mean --size 40GiB?",
		"40B":     "size 40 bytes: it must be a multiple of 512 bytes; did you mean --size 40GiB?",
		"1.25KiB": "size 1280 bytes: it must be a multiple of 512 bytes",
		"1048577": "size 1048577 bytes: it must be a multiple of 512 bytes",
	} {
		_, err := ParseDiskSize(text)
		var usage *UsageError
		if !errors.As(err, &usage) || err.Error() != want {
			t.Errorf("ParseDiskSize(%q) error = %v, want the usage error %q", text, err, want)
		}
	}
	if got, err := ParseDiskSize("1.5KiB"); err != nil || got != 1536 {
		t.Errorf("ParseDiskSize(1.5KiB) = %d, %v", got, err)
	}
}

// An accepted size is above zero, and is accepted as bytes with the same result.
func FuzzSize(f *testing.F) {
	for _, seed := range []string{"20GiB", "1.5MiB", "1073741824", "0.5KiB", "x", "1/3GiB", "..", "BiB", "1e3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseSize(text)
		if err != nil {
			return
		}
		again, err := parseSize(strconv.FormatInt(n, 10))
		if n <= 0 || err != nil || again != n {
			t.Fatalf("parseSize(%q) = %d, and that is read as %d, %v", text, n, again, err)
		}
	})
}

func TestRoundSizesThatWerePrintedCanBeTyped(t *testing.T) {
	for _, n := range []int64{1, 512, 1 << 10, 3 << 9, 64 << 20, 20 << 30, 3 << 29, 1 << 40} {
		if got, err := parseSize(humanize.Bytes(n)); got != n {
			t.Errorf("parseSize(%s) = %d, %v; want %d", humanize.Bytes(n), got, err, n)
		}
	}
}
