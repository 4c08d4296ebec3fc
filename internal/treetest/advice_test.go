// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// adviceTable says of each command that a message has for the operator what it may do to the data
// of an instance.
const adviceTable = "testdata/advice.txt"

// dataWitnesses are asked where the data of an instance is.
var dataWitnesses = []string{"journal", "definition", "kernel", "registry"}

// A message that has a command for the operator is an answer to the question where the data of an
// instance is. A command that changes something is in a table, with the witnesses that were asked
// before, or with why none is needed.
func TestEveryCommandOfAMessageSaysWhichWitnessesWereAsked(t *testing.T) {
	text, err := os.ReadFile(adviceTable)
	if err != nil {
		t.Fatal(err)
	}
	says := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if place, _, row := strings.Cut(line, " | "); row {
			says[place] = true
		}
	}
	there, functions := advisedIn(t, says)
	rules, rows := map[string]bool{}, map[string]string{} // by command; by place and command
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		head, says, _ := strings.Cut(line, ": ")
		kind, what, _ := strings.Cut(head, " ")
		switch kind {
		case "looks", "prose":
			for c := range strings.SplitSeq(what, ", ") {
				rules[c] = false
			}
		case "apart":
			rules[what] = false
			if says == "" {
				t.Errorf("%s: %q does not say why it changes no data of an instance", adviceTable, line)
			}
		case "itself":
			rules[what] = false
			by, _, _ := strings.Cut(says, ";")
			if by, asked, _ := strings.Cut(by, " asks "); !functions[by] || !isWitnesses(asked) {
				t.Errorf("%s: %q names no function that is there, or none of the witnesses %q", adviceTable, line, dataWitnesses)
			}
		default:
			place, commands, _ := strings.Cut(head, " | ")
			for c := range strings.SplitSeq(commands, ", ") {
				rows[place+" | "+c] = line
			}
			asked, why, _ := strings.Cut(says, "; ")
			if !isWitnesses(asked) && asked != "none" || why == "" {
				t.Errorf("%s: %q does not say which of %q were asked, or 'none', and behind '; ' why that is enough", adviceTable, line, dataWitnesses)
			}
		}
	}
	used := map[string]bool{}
	for place, commands := range there {
		for c := range commands {
			if rule, byRule := ruleOf(rules, c); byRule {
				rules[rule] = true
				continue
			}
			row := place + " | " + c
			if rows[row] == "" {
				t.Errorf("%s lacks %q", adviceTable, row)
			}
			used[row] = true
		}
	}
	for _, c := range slices.Sorted(maps.Keys(rules)) {
		if !rules[c] {
			t.Errorf("%s has a rule for %q, which no message has", adviceTable, c)
		}
	}
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		if !used[row] {
			t.Errorf("%s has %q, which no message has (%s)", adviceTable, row, cmp.Or(rows[row], "?"))
		}
	}
}

// ruleOf returns the command of the rules that a command is: that of a noun without a verb may go
// on with any word of a sentence.
func ruleOf(rules map[string]bool, command string) (rule string, is bool) {
	if _, is = rules[command]; is {
		return command, true
	}
	words := strings.Fields(command)
	rule = strings.Join(words[:min(2, len(words))], " ")
	_, is = rules[rule]
	return rule, is && slices.Contains([]string{"volferryctl doctor", "volferryctl status", "volferryctl web"}, rule)
}

func isWitnesses(asked string) bool {
	words := strings.Fields(asked)
	return len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(dataWitnesses, w) })
}
