package browser

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"deepwork/actor/testkit"
)

// maxPicture is the largest size of a picture, in bytes, so that it can be kept for the README.
const maxPicture = 200_000

// Every page of a project in which much happens, and of one that is new, fits its window and shows
// something. The pictures are for people to look at: DEEPWORK_TEST_SCREENSHOTS is the folder that they are
// written to. Those of the README are in ../pictures.
func TestPictures(t *testing.T) {
	needBrowser(t)
	if screenshots != "" {
		testkit.Must(t, os.MkdirAll(screenshots, 0o755))
	}
	project := openShop(t)
	b := person(t, project.root)
	project.override(b)
	for name, path := range project.paths() {
		b.pictures(name, path)
	}

	t.Setenv("XDG_CONFIG_HOME", testkit.Dir(t)) // where no folder is trusted
	b = person(t, project.root)
	b.pictures("trust-waiting", "/trust")
	b.pictures("now-waiting", "/")

	empty := testkit.Dir(t)
	testkit.Git(t, empty, "init", "-q", "-b", "main")
	b = person(t, empty)
	for name, path := range map[string]string{"now-empty": "/", "board-empty": "/board", "jobs-empty": "/jobs", "sources-empty": "/sources", "trust-empty": "/trust", "login": "/login"} {
		b.pictures(name, path)
	}
}

// person opens the pages of the project at root as the one who runs deepwork ui.
func person(t *testing.T, root string) *tab {
	t.Helper()
	pages := serve(t, root, "ui", "--no-open")
	b := browse(t, pages)
	secret, err := url.Parse(pages.login)
	testkit.Must(t, err)
	b.open(secret.RequestURI())
	return b
}

// pictures takes pictures of a page in light, dark and on a narrow screen, and writes them if somebody looks at them.
func (b *tab) pictures(name, path string) {
	b.t.Helper()
	for _, as := range []struct {
		name  string
		width int64
		dark  bool
	}{{"light", 1280, false}, {"dark", 1280, true}, {"narrow", 400, false}} {
		b.do(chromedp.EmulateViewport(as.width, 900), dark(as.dark))
		b.open(path)
		if over := eval[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
			b.t.Errorf("%s is %d pixels wider than %d: %s", name, over, as.width, eval[string](b, widest))
		}
		picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		testkit.Must(b.t, err)
		file := fmt.Sprintf("%s-%s.png", name, as.name)
		full, err := png.Decode(bytes.NewReader(picture))
		testkit.Must(b.t, err)
		if colors := colorsOf(full, 10); colors < 10 {
			b.t.Errorf("%s has %d colors: nothing is on it", file, colors)
		}
		if screenshots == "" {
			continue
		}
		small := smaller(b.t, full)
		testkit.Must(b.t, os.WriteFile(filepath.Join(screenshots, file), small, 0o644))
		if len(small) > maxPicture {
			b.t.Errorf("%s has %d bytes, more than %d", file, len(small), maxPicture)
		}
	}
}

// colorsOf returns how many colors a picture has, at most as many as are enough.
func colorsOf(picture image.Image, enough int) int {
	found := map[color.Color]bool{}
	size := picture.Bounds()
	for y := range size.Dy() {
		for x := range size.Dx() {
			if found[picture.At(x, y)] = true; len(found) == enough {
				return enough
			}
		}
	}
	return len(found)
}

// smaller returns a picture with 256 colors at most, which takes a third of the bytes: the most frequent
// ones, and the most frequent of those that are alike.
func smaller(t testing.TB, full image.Image) []byte {
	t.Helper()
	count := map[color.Color]int{}
	size := full.Bounds()
	for y := range size.Dy() {
		for x := range size.Dx() {
			count[full.At(x, y)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return count[b] - count[a] })
	var palette color.Palette
	alike := map[[3]uint32]bool{}
	for i, c := range frequent {
		r, g, b, _ := c.RGBA()
		if rough := [3]uint32{r >> 12, g >> 12, b >> 12}; len(palette) < 256 && (i < 100 || !alike[rough]) {
			palette = append(palette, c)
			alike[rough] = true
		}
	}
	few := image.NewPaletted(size, palette)
	nearest := map[color.Color]uint8{}
	for c := range count {
		nearest[c] = uint8(palette.Index(c))
	}
	for y := range size.Dy() {
		for x := range size.Dx() {
			few.SetColorIndex(x, y, nearest[full.At(x, y)])
		}
	}
	var b bytes.Buffer
	testkit.Must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, few))
	return b.Bytes()
}
