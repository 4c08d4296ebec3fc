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
		"one of two":         {[]string{other}, Some, 1},
		"all":                {[]string{other, pass + `"`, pass + `/sub_one"`}, Passed, 2},
		"with trials":        {[]string{other, pass + `"`, pass + `/sub_one"`, pass + `/sub_one/x"`, pass + `/sub_one/y"`}, Passed, 3},
		"one failed":         {[]string{other, fail + `"`, fail + `/sub_one"`}, Failed, 1},
		"no such subtest":    {[]string{other, pass + `"`, pass + `/sub_two"`}, Missing, 1},
		"skipped":            {[]string{other, strings.Replace(pass, "pass", "skip", 1) + `"`}, Some, 1},
		"another's subtests": {[]string{other, pass + `"`, pass + `/sub_one"`, pass + `/sub_one_more"`}, Passed, 2},
	} {
		t.Run(name, func(t *testing.T) {
			all := NewResults()
			if err := all.Read(strings.NewReader("make: nothing\n{"+strings.Join(c.lines, "}\n{")+"}\n"), "m"); err != nil {
				t.Fatal(err)
			}
			if verdict, runs := all.Of(row(t, listed)); verdict != c.verdict || runs != c.runs {
				t.Errorf("%s with %d runs, want %s with %d", verdict, runs, c.verdict, c.runs)
			}
		})
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
