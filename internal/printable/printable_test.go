// SPDX-License-Identifier: Apache-2.0

package printable_test

import (
	"encoding/json"
	"testing"

	"github.com/volferry/volferry/internal/printable"
)

func TestWhatATerminalObeysIsReplacedAnywhereInADocument(t *testing.T) {
	for document, want := range map[string]string{
		"":                        "",
		`{"b": 1.50, "a":"x\ny"}`: `{"b": 1.50, "a":"x\ny"}`, // unchanged, byte for byte
		`{"error":{"message":"\u001b[2Jgone","details":{"n":12345678901234567890}}}`: `{"error":{"details":{"n":12345678901234567890},"message":"�[2Jgone"}}`,
		"[\"a\u202eb\",[{\"\\u009bk\":\"\x7f\"}],\"ä\\t\"]":                          `["a�b",[{"�k":"�"}],"ä\t"]`,
	} {
		got, err := printable.JSON(json.RawMessage(document))
		if err != nil || string(got) != want {
			t.Errorf("%q becomes %q, %v; want %q", document, got, err, want)
		}
	}
	if _, err := printable.JSON(json.RawMessage(`{"a":`)); err == nil {
		t.Error("half a document was taken")
	}
}
