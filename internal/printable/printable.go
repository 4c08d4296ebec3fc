// SPDX-License-Identifier: Apache-2.0

// Package printable makes texts of other programs safe to show to a person.
package printable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text replaces by U+FFFD each character that controls a terminal or makes text look like
// other text. It keeps line breaks and tabs.
func Text(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) || r == '\n' || r == '\t' {
			return r
		}
		return utf8.RuneError
	}, text)
}

// JSON applies Text to all texts and field names of a JSON document.
func JSON(document json.RawMessage) (json.RawMessage, error) {
	if len(document) == 0 {
		return document, nil
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	value, changed := printableValue(value)
	if !changed {
		return document, nil
	}
	clean, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("write document: %w", err)
	}
	return clean, nil
}

// Details applies Text to all texts and keys of decoded JSON.
func Details(details map[string]any) map[string]any {
	value, _ := printableValue(details)
	clean, _ := value.(map[string]any) // printableValue returns a map for a map
	return clean
}

// printableValue applies Text to a value. It copies a value that it changes.
func printableValue(value any) (_ any, changed bool) {
	switch v := value.(type) {
	case string:
		clean := Text(v)
		return clean, clean != v
	case []any:
		list := make([]any, len(v))
		for i := range v {
			clean, dirty := printableValue(v[i])
			list[i], changed = clean, changed || dirty
		}
		value = list
	case map[string]any:
		if v == nil {
			return v, false
		}
		object := make(map[string]any, len(v))
		for key, inner := range v {
			clean, dirty := printableValue(inner)
			name := Text(key)
			object[name], changed = clean, changed || dirty || name != key
		}
		value = object
	}
	return value, changed
}
