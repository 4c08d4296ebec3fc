// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/volferry/volferry/test/bench/meter"
)

// results are of Volferry and two others that move a volume of 1 GiB, of which one always fails.
func results() ([]record, []group) {
	g := group{name: stopped, setting: setting{fill: 100, disks: 1}, contenders: []contender{{name: "volferry-stopped"}, {name: "slow"}, {name: "broken"}}}
	var records []record
	for i, seconds := range []float64{1, 2, 3} {
		records = append(records,
			record{Group: stopped, FillPercent: 100, Disks: 1, Contender: "volferry-stopped", Round: i, SizeBytes: 1 << 30, TotalSeconds: seconds, Cost: &cost{}},
			record{Group: stopped, FillPercent: 100, Disks: 1, Contender: "slow", Round: i, SizeBytes: 1 << 30, TotalSeconds: 3 * seconds, Cost: &cost{MoverCPUSeconds: 0.5}},
			record{Group: stopped, FillPercent: 100, Disks: 1, Contender: "broken", Round: i, SizeBytes: 1 << 30, TotalSeconds: 0.001, Error: "a block\nis wrong"})
	}
	return records, []group{g}
}

func TestTheTableHasMediansAndHowManyTimesThoseOfVolferryTheyAre(t *testing.T) {
	records, groups := results()
	text := table(map[string]any{}, records, groups, nil)
	for _, want := range []string{"| volferry-stopped | 3 | 2 (1×) | 0 |", "| slow | 3 | 6 (3.00×) | 0.5 |", "how many times of volferry's"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table has no line %q:\n%s", want, text)
		}
	}
}

func TestTheTableSaysOnWhichMachineAndDiskItWasMade(t *testing.T) {
	records, groups := results()
	text := table(map[string]any{"cpu": "a CPU", "cpus": 2, "memory_gib": 7.8, "disk": "vda (virtio, rotational=1)"}, records, groups, nil)
	if want := "a CPU, 2 CPUs, 7.8 GiB of RAM, volumes on vda (virtio, rotational=1), Linux "; !strings.Contains(text, want) {
		t.Errorf("the table has no %q:\n%s", want, text)
	}
}

func TestTheRuleOfPercentilesThatTheTableNamesIsObeyed(t *testing.T) {
	records, groups := results()
	if text := table(map[string]any{}, records, groups, nil); !strings.Contains(text, percentiles) {
		t.Errorf("the table does not say what a percentile is:\n%s", text)
	}
	for n, longest := range map[int]bool{99: true, 100: false} {
		all := hundred()[:n]
		if got := quantile(all, 0.99) == all[n-1]; got != longest {
			t.Errorf("of %d latencies p99 is the longest: %v, want %v", n, got, longest)
		}
	}
}

func TestARatioIsToTheDefaultOfVolferryWhereThatRan(t *testing.T) {
	seconds := column{title: "total s", ratio: true}
	medians := map[string]float64{"volferry": 3, "blockcopy": 1.26, "slow": 300, "cp": 0.03}
	for contender, want := range map[string]string{
		"volferry": "3 (1×)", "blockcopy": "1.26 (0.42×)", "slow": "300 (100.00×)", "cp": "0.03 (0.01×)", "absent": "–",
	} {
		if got := seconds.cell(medians, contender, "volferry"); got != want {
			t.Errorf("the cell of %s is %q, want %q", contender, got, want)
		}
	}
	if got := seconds.cell(medians, "blockcopy", "volferry-stopped"); got != "1.26" {
		t.Errorf("without Volferry's default the cell is %q, want 1.26", got)
	}
	if got := (column{}).cell(medians, "blockcopy", "volferry"); got != "1.26" {
		t.Errorf("in a column without ratios the cell is %q, want 1.26", got)
	}
}

func TestAContenderThatFailsIsNeverFast(t *testing.T) {
	records, groups := results()
	text := table(map[string]any{}, records, groups, nil)
	if !strings.Contains(text, "| broken | 3, **3 failed** | – |") || strings.Contains(text, "0.001") {
		t.Errorf("the table does not say that the contender failed:\n%s", text)
	}
	if drawn := draw(records, groups); strings.Count(drawn, "no number") != 1 || strings.Count(drawn, "<circle") != 6 {
		t.Errorf("the plot does not leave out what failed:\n%s", drawn)
	}
}

func TestTheTableSaysWhyAContenderFailedOnceAndHowOften(t *testing.T) {
	records, groups := results()
	text := table(map[string]any{}, records, groups, []string{"rsync: rsync is not installed"})
	if want := "\nbroken failed, 3×: a block is wrong\n"; strings.Count(text, want) != 1 {
		t.Errorf("the table has %q not once:\n%s", want, text)
	}
	if want := "\nLeft out: rsync: rsync is not installed.\n"; !strings.Contains(text, want) {
		t.Errorf("the table has no %q:\n%s", want, text)
	}
}

func TestMovesOfOtherFillsAndDisksAreInOtherTables(t *testing.T) {
	records, groups := results()
	half := groups[0]
	half.setting.fill = 50
	two := groups[0]
	two.setting.disks = 2
	records = append(records, record{Group: stopped, FillPercent: 50, Disks: 1, Contender: "volferry-stopped", SizeBytes: 1 << 30, TotalSeconds: 0.5, Cost: &cost{}})
	text := table(map[string]any{}, records, append(groups, half, two), nil)
	for _, want := range []string{"| volferry-stopped | 3 | 2 (1×) |", "| volferry-stopped | 1 | 0.5 (1×) |", "| volferry-stopped | 0 |"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("the tables have no line %q:\n%s", want, text)
		}
	}
	for _, want := range []string{"; 100 % full, source and destination on one disk\n", "; 50 % full, ", "; 100 % full, source and destination on a disk each\n"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("no heading, or two, with %q:\n%s", want, text)
		}
	}
}

func TestTheTableOfAGuestHasALineForEachWindowAndWhatIsLeftOfItsThroughput(t *testing.T) {
	g := group{name: "depth1", writer: writers[1], contenders: []contender{{name: "fast"}, {name: "other"}}}
	flush := &latencies{P50MS: 7, P99MS: 8, P999MS: 9, MaxMS: 10}
	guest := map[string]window{
		"idle": {Seconds: 2, Acked: 200, PerSecond: 100, latencies: latencies{1, 2, 3, 4}},
		"fold": {Seconds: 1, Acked: 25, PerSecond: 25, latencies: latencies{5, 6, 7, 8}, Write: &latencies{2, 3, 4, 5}, Flush: flush},
	}
	text := table(map[string]any{}, []record{{Group: "depth1", Contender: "fast", SizeBytes: 1 << 30, Cost: &cost{}, Guest: guest}}, []group{g}, nil)
	for _, want := range []string{
		"| contender | window | s | each second | of idle % | p50 | p99 | p99.9 | max | write p50 | write p99 | write p99.9 | write max | flush p50 | flush p99 | flush p99.9 | flush max |\n",
		"| fast | idle | 2 | 100 | 100 | 1 | 2 | 3 | 4 | – | – | – | – | – | – | – | – |\n",
		"| fast | fold | 1 | 25 | 25 | 5 | 6 | 7 | 8 | 2 | 3 | 4 | 5 | 7 | 8 | 9 | 10 |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table has no line %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "| other | idle") || strings.Contains(text, "| fast | copy") {
		t.Errorf("there are lines of windows that nobody was watched in:\n%s", text)
	}
}

func TestTheTableHasWhatQEMUWroteBesideAGuestAndWhatWasWrittenToBothDisks(t *testing.T) {
	moved := func(name string, bytes int64) record {
		of := cost{QEMUWrittenBytes: bytes, Src: meter.DiskBytes{Written: 3 << 20}, Dst: meter.DiskBytes{Written: 4 << 20}}
		return record{Group: name, Contender: "one", SizeBytes: 1 << 30, Cost: &of}
	}
	for name, want := range map[string]string{
		"none":  "| QEMU written MiB | src read MiB | src written MiB | dst read MiB | dst written MiB |\n|---|---|---|---|---|---|---|---|---|\n| one | 1 | 0 | 0 | 5 | 0 | 3 | 0 | 4 |\n",
		stopped: "| mover CPU s/GiB | src read MiB | src written MiB |",
	} {
		g := group{name: name, contenders: []contender{{name: "one"}}}
		if text := table(map[string]any{}, []record{moved(name, 5<<20)}, []group{g}, nil); !strings.Contains(text, want) {
			t.Errorf("the table of %s has no %q:\n%s", name, want, text)
		}
	}
	// A QEMU that wrote nothing is one that was asked.
	if got := qemuWritten(moved("none", 0)); got != 0 {
		t.Errorf("a QEMU that wrote nothing wrote %v MiB", got)
	}
}

func TestThePlotIsXML(t *testing.T) {
	d := xml.NewDecoder(strings.NewReader(draw(results())))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
