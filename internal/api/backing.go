// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"fmt"
)

// BaseImage is an image that a linked clone reads from, directly or through other base images.
// Block: it is a block device.
type BaseImage struct {
	Path   string `json:"path"`
	Format Format `json:"format"`
	Block  bool   `json:"block,omitempty"`
}

// Backing lists the base images of a linked clone, top first; it is empty for another image. No
// program writes to base images. The Go type is the text of the JSON, an array of BaseImage, so
// that locations can be compared with ==.
type Backing string

// NewBacking returns a Backing of base images, top first.
func NewBacking(images []BaseImage) Backing {
	if len(images) == 0 {
		return ""
	}
	text, err := json.Marshal(images)
	if err != nil {
		panic(err) // strings and bools
	}
	return Backing(text)
}

// Images returns the base images, top first.
func (b Backing) Images() (images []BaseImage) {
	if b == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(b), &images); err != nil {
		panic(fmt.Errorf("read base images: %w", err)) // only NewBacking makes one
	}
	return images
}

// MarshalJSON implements json.Marshaler.
func (b Backing) MarshalJSON() ([]byte, error) {
	if b == "" {
		return []byte("[]"), nil
	}
	return []byte(b), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *Backing) UnmarshalJSON(text []byte) error {
	var images []BaseImage
	if err := json.Unmarshal(text, &images); err != nil {
		return err
	}
	*b = NewBacking(images)
	return nil
}

// Documented returns a value of the JSON type of a Backing, for the API's schema.
func (Backing) Documented() any { return []BaseImage{} }
