// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"strings"
	"testing"
)

const listed = `phase X Trial
X1 a row
  holds: something
  kill: test/e2e TestA/sub_one
  fake: daemon TestB
`

func row(t *testing.T, text string) *Row {
	t.Helper()
	phases, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return &phases[0].Rows[0]
}

func TestARowHasTheWorstOfItsTestsAndAllTheirTrials(t *testing.T) {
	const pass, fail = `"Action":"pass","Package":"m/test/e2e","Test":"TestA`, `"Action":"fail","Package":"m/test/e2e","Test":"TestA`
	const other = `"Action":"pass","Package":"m/daemon","Test":"TestB"`
	for name, c := range map[string]struct {
		lines   []string
		verdict Verdict
		runs    int
	}{
		"nothing ran":        {nil, NotRun, 0},
		"the fake alone":     {[]string{other}, Fakes, 1},
		"the real one alone": {[]string{pass + `"`, pass + `/sub_one"`}, Some, 1},
		"all":                {[]string{other, pass + `"`, pass + `/sub_one"`}, Passed, 2},
		"with trials":        {[]string{other, pass + `"`, pass + `/sub_one"`, pass + `/sub_one/x"`, pass + `/sub_one/y"`}, Passed, 3},
		"one failed":         {[]string{other, fail + `"`, fail + `/sub_one"`}, Failed, 1},
		"no such subtest":    {[]string{other, pass + `"`, pass + `/sub_two"`}, Missing, 1},
		"skipped":            {[]string{other, strings.Replace(pass, "pass", "skip", 1) + `"`}, Fakes, 1},
		"another's subtests": {[]string{other, pass + `"`, pass + `/sub_one"`, pass + `/sub_one_more"`}, Passed, 2},
	} {
		t.Run(name, func(t *testing.T) {
			all := NewResults()
			if err := all.Read(strings.NewReader("make: nothing\n{"+strings.Join(c.lines, "}\n{")+"}\n"), "m"); err != nil {
				t.Fatal(err)
			}
			if o := all.Of(row(t, listed)); o.Verdict != c.verdict || o.TrialsPassed != c.runs || (o.TrialsFailed > 0) != (c.verdict == Failed) {
				t.Errorf("%+v, want %s with %d trials", o, c.verdict, c.runs)
			}
		})
	}
}

func TestTheLastRunOfATestCountsWhateverTheOrderOfTheFiles(t *testing.T) {
	end := func(action, at string) string {
		return `{"Time":"2026-11-26T` + at + `Z","Action":"` + action + `","Package":"m/daemon","Test":"TestB"}`
	}
	r := row(t, "phase X Trial\nX1 a row\n  holds: something\n  kill: daemon TestB\n")
	for _, c := range []struct {
		files   []string
		verdict Verdict
	}{
		{[]string{end("fail", "10:00:00"), end("pass", "11:00:00")}, Passed},
		{[]string{end("pass", "11:00:00"), end("fail", "10:00:00")}, Passed},
		{[]string{end("pass", "10:00:00"), end("fail", "11:00:00")}, Failed},
		{[]string{end("fail", "10:00:00"), end("skip", "11:00:00")}, Failed},
	} {
		all := NewResults()
		for _, file := range c.files {
			if err := all.Read(strings.NewReader(file+"\n"), "m"); err != nil {
				t.Fatal(err)
			}
		}
		if o := all.Of(r); o.Verdict != c.verdict || o.TrialsFailed != 1 {
			t.Errorf("of %v: %+v, want %s and one trial that failed", c.files, o, c.verdict)
		}
	}
}

func TestTestsInTheMachineWithStorageAreThoseOfTestE2E(t *testing.T) {
	r := row(t, "phase X Trial\nX1 a row\n  holds: something\n  asked: test/e2e TestStorageA/sub_one\n")
	for end, want := range map[string]Verdict{"pass": Passed, "fail": Failed} {
		ended := func(action, test string) string {
			return `{"Action":"` + action + `","Package":"m/test/storage","Test":"` + test + `"}` + "\n"
		}
		all := NewResults()
		if err := all.Read(strings.NewReader(ended(end, "TestStorageA/sub_one")+ended(end, "TestStorageA")+ended("pass", "TestAll")), "m"); err != nil {
			t.Fatal(err)
		}
		if o := all.Of(r); o.Verdict != want || o.TrialsPassed+o.TrialsFailed != 1 {
			t.Errorf("%s: %+v, want %s with one trial", end, o, want)
		}
	}
}

func TestARowIsAsGoodAsItsTests(t *testing.T) {
	const head, holds, lacks = "phase X Trial\nX1 a row\n", "  holds: something\n", "  lacks: more\n"
	for text, want := range map[string]Cover{
		holds + "  kill: test/e2e TestA\n":                       Real,
		holds + "  kill: test/e2e TestA\n  fake: daemon TestB\n": Real,
		holds + "  asked: test/e2e TestA\n" + lacks:              Partly,
		holds + "  fake: daemon TestB\n" + lacks:                 Simulated,
		holds + lacks:                                            Open,
		"  never: it is off\n":                                   Never,
	} {
		if got := row(t, head+text).Cover(); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{
		"",                                   // says nothing
		holds,                                // open, and does not say what it lacks
		holds + "  fake: daemon TestB\n",     // a fake alone, and nothing lacks
		holds + "  never: it is off\n",       // both
		holds + "  shot: test/e2e TestA\n",   // no way to make a failure
		holds + holds + lacks,                // twice
		holds + lacks + "X1 again\n" + holds, // twice
		holds + lacks + "Y1 of another\n",    // of no phase
	} {
		if _, err := parse(head + text); err == nil {
			t.Errorf("it is taken:\n%s", text)
		}
	}
}

func TestThePageOfRunsSaysOfEachRowWhatRanAndWhere(t *testing.T) {
	const text = `phase X Trial
X1 a row
  holds: something
  kill: test/e2e TestA
  fake: daemon TestB
X2 another
  holds: something
  kill: test/e2e TestC
X3 a third
  never: it is off
`
	phases, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	all := NewResults()
	for _, file := range []string{
		RunLine("1.2.3+4.gabc", "2 processors, QEMU 7.2") + `
{"Time":"2026-01-02T03:04:05Z","Action":"run","Package":"m/test/e2e","Test":"TestA/x"}
{"Action":"output","Package":"m/test/e2e","Test":"TestA/x","Output":"    a_test.go:1: vda of g: 70 writes acknowledged, 69 found\n"}
{"Action":"pass","Package":"m/test/e2e","Test":"TestA/x"}
{"Action":"fail","Package":"m/test/e2e","Test":"TestA/y"}
{"Time":"2026-01-02T04:04:05Z","Action":"fail","Package":"m/test/e2e","Test":"TestA"}
`,
		"go build -ldflags '-X m/internal/version.Version=0.0.0+gdef' -o bin/x\n",
	} {
		if err := all.Read(strings.NewReader(file), "m"); err != nil {
			t.Fatal(err)
		}
	}
	page := all.RunsPage(phases)
	for _, want := range []string{
		"* 2026-01-02 03:04 to 2026-01-02 04:04 UTC, 1.2.3+4.gabc: 1 test of test/e2e; on 2 processors, QEMU 7.2. Guests were answered for 70 writes, counted at each look, and 69 were found\n",
		"UTC, 0.0.0+gdef: 0 tests",
		"on a machine that its file does not say\n",
		"| X1 | a row | kill | FAILED | 0 of 2 | 1 | 1 |\n",
		"| X2 | another |  | not run | 0 of 1 | 0 | 0 |\n",
		"| X3 | a third |  | cannot happen | 0 of 0 | 0 | 0 |\n",
		"| FAILED | 1 |\n", "| not run | 1 |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

func TestARowHasWhatAPageOfEarlierRunsSaysOfIt(t *testing.T) {
	const (
		fake, kill = `{"Action":"pass","Package":"m/daemon","Test":"TestB"}`, `{"Action":"pass","Package":"m/test/e2e","Test":"TestA"}
{"Action":"pass","Package":"m/test/e2e","Test":"TestA/sub_one"}`
		fail = `{"Action":"fail","Package":"m/daemon","Test":"TestB"}`
	)
	page := func(t *testing.T, before *Results, events string) (*Results, string) {
		t.Helper()
		phases, err := parse(listed)
		if err != nil {
			t.Fatal(err)
		}
		if err := before.Read(strings.NewReader(events), "m"); err != nil {
			t.Fatal(err)
		}
		return before, before.RunsPage(phases)
	}
	for name, c := range map[string]struct {
		then, now             string
		verdict               Verdict
		tests, passed, failed int
	}{
		"the same again":        {fake, fake, Fakes, 1, 2, 0},
		"the other":             {fake, kill, Some, 1, 2, 0},
		"all then, some now":    {fake + "\n" + kill, fake, Passed, 2, 3, 0},
		"failed then, some now": {fail, kill, Failed, 1, 1, 1},
		"failed then, all now":  {fail, kill + "\n" + fake, Passed, 2, 2, 1},
		"failed now":            {fake + "\n" + kill, fail, Failed, 0, 2, 1},
		"nothing now":           {kill, "", Some, 1, 1, 0},
		"another part of it":    {fake + "\n" + kill, `{"Action":"pass","Package":"m/test/e2e","Test":"TestA"}`, Passed, 2, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, then := page(t, NewResults(), c.then)
			since := NewResults()
			if err := since.ReadPage(strings.NewReader(then)); err != nil {
				t.Fatal(err)
			}
			got, both := page(t, since, c.now)
			o := got.Of(row(t, listed))
			if o.Verdict != c.verdict || o.TestsPassed != c.tests || o.TrialsPassed != c.passed || o.TrialsFailed != c.failed {
				t.Errorf("%+v, want %+v", o, c)
			}
			again := NewResults()
			if err := again.ReadPage(strings.NewReader(both)); err != nil {
				t.Fatal(err)
			}
			if _, third := page(t, again, ""); strings.Count(third, "\n* ") != strings.Count(both, "\n* ")+1 {
				t.Errorf("a page of a page:\n%s\nwant the runs and the rows of\n%s", third, both)
			}
		})
	}
}
