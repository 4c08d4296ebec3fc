// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/volferry/volferry/test/matrix"
)

// stream is what 'go test -json' prints.
func stream(t *testing.T, events ...matrix.Event) *strings.Reader {
	t.Helper()
	text := "make: nothing\n"
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		text += string(line) + "\n"
	}
	return strings.NewReader(text)
}

func says(test string, m Move) matrix.Event {
	return matrix.Event{Action: "output", Package: "p", Test: test, Output: "    move_test.go:30: " + m.String() + "\r\n"}
}

func ended(test, how string) matrix.Event {
	return matrix.Event{Action: how, Package: "p", Test: test}
}

func TestOnlyMovesOfTestsThatPassedAreOnThePage(t *testing.T) {
	var all Results
	for _, events := range [][]matrix.Event{
		{
			says("TestA", Move{"file", "device", "running", Completed}),
			says("TestA", Move{"file", "device", NoGuest, Completed}),
			says("TestA/sub", Move{"device", "file", "stopped", Cancelled}),
			ended("TestA/sub", "pass"), ended("TestA", "pass"),
		},
		{
			says("TestB", Move{"file", "failed", "running", Completed}),
			ended("TestB", "fail"),
			says("TestC/sub", Move{"file", "subfailed", "running", Completed}),
			ended("TestC/sub", "pass"), ended("TestC", "fail"),
			says("TestD", Move{"file", "cut off", "running", Completed}),
			says("TestE", Move{"file", "failed once", "running", Completed}), ended("TestE", "fail"),
		},
		{says("TestE", Move{"file", "failed once", "running", Completed}), ended("TestE", "pass")},
	} {
		if err := all.Read(stream(t, events...), "m"); err != nil {
			t.Fatal(err)
		}
	}
	page := all.Page()
	for _, want := range []string{"moves: 4, in", "\n* 0001-01-01", "| from \\ to | device | failed once |\n", "| file | R N | R |\n", "| from \\ to | file |\n", "| device | S |\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(strings.ReplaceAll(page, "failed once", ""), "fail") || strings.Contains(page, "cut off") {
		t.Errorf("the page has what did not pass:\n%s", page)
	}
	if got := strings.Join(all.Failed(), " "); got != "TestB TestC TestD" {
		t.Errorf("failed: %s", got)
	}
}

func TestAPageHasWhatTheOneBeforeSaysAndMore(t *testing.T) {
	read := func(before string, m Move) string {
		t.Helper()
		var all Results
		if before != "" {
			if err := all.ReadPage(strings.NewReader(before)); err != nil {
				t.Fatal(err)
			}
		}
		if err := all.Read(stream(t, says("TestA", m), ended("TestA", "pass")), "m"); err != nil {
			t.Fatal(err)
		}
		return all.Page()
	}
	page := read("", Move{"file", "device", "running", Completed})
	page = read(page, Move{"file", "device", NoGuest, Completed})
	page = read(page, Move{"device", "export", "stopped", Cancelled})
	for _, want := range []string{"moves: 3, in", "| file | R N |\n", "| device | S |\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if runs := strings.Count(page, "\n* "); runs != 3 {
		t.Errorf("the page has %d runs, want 3:\n%s", runs, page)
	}
	var all Results
	if err := all.ReadPage(strings.NewReader("## Moved\n| from \\ to | a | b |\n| file | R |\n")); err == nil {
		t.Error("a row that lacks a cell is no error")
	}
}

func TestALineThatIsHalfALineOfAMoveIsAnError(t *testing.T) {
	var all Results
	half := says("TestA", Move{})
	half.Output = lineHead + "file; device"
	if err := all.Read(stream(t, half, ended("TestA", "pass")), "m"); err == nil {
		t.Error("no error")
	}
}
