// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"fmt"
)

// BaseImage is an image somewhere below that of a linked clone. Block says that it is a block
// device.
type BaseImage struct {
	Path   string `json:"path"`
	Format Format `json:"format"`
	Block  bool   `json:"block,omitempty"`
}

// Backing are the base images of a linked clone, top first: it reads from them what it does not
// have itself, and nothing writes to them. In JSON it is an array of BaseImage; here it is the
// text of that, so that two locations can be compared. Empty if the image stands alone.
type Backing string

// NewBacking is the Backing of these images.
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

// Images are the base images, top first.
func (b Backing) Images() (images []BaseImage) {
	if b == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(b), &images); err != nil {
		panic(fmt.Errorf("read base images: %w", err)) // only NewBacking makes one
	}
	return images
}

// MarshalJSON writes the array.
func (b Backing) MarshalJSON() ([]byte, error) {
	if b == "" {
		return []byte("[]"), nil
	}
	return []byte(b), nil
}

// UnmarshalJSON reads the array.
func (b *Backing) UnmarshalJSON(text []byte) error {
	var images []BaseImage
	if err := json.Unmarshal(text, &images); err != nil {
		return err
	}
	*b = NewBacking(images)
	return nil
}

// Documented is what it is in JSON.
func (Backing) Documented() any { return []BaseImage{} }
