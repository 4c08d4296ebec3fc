// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

const gib = 1 << 30

func copying(done int64) *api.Migration {
	return &api.Migration{
		VolumeName: "db-data", State: api.MigrationCopying, Phase: "copy",
		BytesTotal: 2 * gib, BytesDone: done, RateBytesPerSecond: 100 << 20,
	}
}

func TestBarFitsEveryWidth(t *testing.T) {
	for width, want := range map[int]string{
		120: "db-data: copy  [##############..............]   50%  1GiB of 2GiB  100MiB/s  ETA 10s",
		70:  "db-data: copy  [######.......]   50%  1GiB of 2GiB  100MiB/s  ETA 10s",
		60:  "db-data: copy   50%  1GiB of 2GiB  100MiB/s  ETA 10s",
		40:  "db-data: copy   50%  1GiB of 2GiB",
		20:  "db-data: copy   50%",
		10:  "db-data:…",
	} {
		got := barLine(copying(gib), 10*time.Second, width)
		if utf8.RuneCountInString(got) >= width {
			t.Errorf("width %d: %d cells: %q", width, utf8.RuneCountInString(got), got)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", width, diff)
		}
	}
}

func TestBarIsRedrawnInPlaceAndTakenAway(t *testing.T) {
	var b strings.Builder
	p := NewBar(&b, func() int { return 20 })
	p.Update(copying(gib))
	p.Update(copying(2 * gib))
	p.Clear()
	p.Clear()
	want := clearLine + "db-data: copy   50%" + clearLine + "db-data: copy  100%" + clearLine
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}

func TestPlainLinesComeAtPhasesAndEveryTenPercent(t *testing.T) {
	var b strings.Builder
	p := NewPlain(&b)
	p.Update(&api.Migration{VolumeName: "db-data", State: api.MigrationStarting})
	for percent := int64(0); percent <= 24; percent++ {
		p.Update(copying((2*gib*percent + 99) / 100))
	}
	done := copying(2 * gib)
	done.State = api.MigrationCompleted
	p.Update(done)
	want := `db-data: starting
db-data: copy    0%  0B of 2GiB  100MiB/s
db-data: copy   10%  204.8MiB of 2GiB  100MiB/s
db-data: copy   20%  409.6MiB of 2GiB  100MiB/s
db-data: completed
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// A log has each line once, whatever comes between.
func TestPlainLinesAreNotRepeated(t *testing.T) {
	var b strings.Builder
	p := NewPlain(&b)
	for range 3 {
		p.Update(&api.Migration{VolumeName: "db-data", State: api.MigrationCompleting, Phase: "waiting for registry"})
		p.Update(&api.Migration{VolumeName: "db-data", State: api.MigrationCompleting, Phase: "fold", BytesTotal: gib})
		p.Update(&api.Migration{VolumeName: "db-data", State: api.MigrationCompleting, Phase: "fold", BytesTotal: gib})
		p.lastPercent = -plainStepPercent
	}
	for i, lines := 1, strings.Split(b.String(), "\n"); i < len(lines); i++ {
		if lines[i] == lines[i-1] {
			t.Errorf("line %d is the one before it: %s", i+1, lines[i])
		}
	}
}

func TestTimeLeftIsSaidOnceAPhaseWasMeasuredForLongEnough(t *testing.T) {
	var p measured
	begin := time.Unix(1800000000, 0)
	at := func(seconds, done int64) time.Duration {
		m := copying(done)
		m.RateBytesPerSecond = 1 // the reported rate does not matter
		return p.left(m, begin.Add(time.Duration(seconds)*time.Second)).Round(time.Second)
	}
	// A gigabyte goes into memory in a second; then the storage writes 10 MiB a second.
	const mib = 1 << 20
	if left := at(0, 0); left != 0 {
		t.Errorf("at once %s are left", left)
	}
	for s := int64(1); s < int64(measureFor/time.Second); s++ {
		if left := at(s, 1000*mib+s*10*mib); left != 0 {
			t.Errorf("after %d s %s are left, want nothing said", s, left)
		}
	}
	for s := int64(10); s < 40; s++ {
		at(s, 1000*mib+s*10*mib)
	}
	if left, want := at(40, 1400*mib), 64800*time.Millisecond; left != want.Round(time.Second) {
		t.Errorf("%s are left, want %s by the last half minute", left, want)
	}
	m := copying(0)
	m.Phase = "verify"
	if left := p.left(m, begin.Add(41*time.Second)); left != 0 {
		t.Errorf("of the next phase %s are left at once", left)
	}
}

func TestPercentOfOddNumbers(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		want        string
	}{{0, 0, "-"}, {5, 0, "-"}, {3, 2, "100%"}, {-1, 2, "0%"}, {1<<63 - 2, 1<<63 - 1, "100%"}, {1 << 61, 1 << 62, "50%"}} {
		if got := Percent(&api.Migration{BytesDone: c.done, BytesTotal: c.total}); got != c.want {
			t.Errorf("Percent(%d of %d) = %s, want %s", c.done, c.total, got, c.want)
		}
	}
}
