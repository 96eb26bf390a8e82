// Requests built once as bytes, with places in them to patch: what keeps the generator cheap.

package main

import (
	"bytes"
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// template is a request as bytes and the places in it that change from one to the next.
type template struct {
	raw              []byte
	bin              bool
	opaqueAt, bornAt int
	uniqAt           []int
	msgs, bytes      int
}

var (
	uniqRun = fmt.Sprintf("%016X", uint64(time.Now().UnixNano())) // first half of every UNIQ_KEY of this run
	uniqSeq atomic.Uint64
)

func newTemplate(bin bool, code, flag int, ext []kv, body []byte, msgs, size int) *template {
	t := &template{raw: frame(bin, code, opaqueBase, flag, ext, body), bin: bin, opaqueAt: 13, msgs: msgs, bytes: size}
	if !bin {
		t.opaqueAt = bytes.Index(t.raw, []byte(`"opaque":`)) + 9
	}
	t.bornAt = bytes.Index(t.raw, strconv.AppendInt(nil, bornBase, 10))
	for at := 0; ; {
		i := bytes.Index(t.raw[at:], []byte(uniqRun))
		if i < 0 {
			return t
		}
		at += i + 16
		t.uniqAt = append(t.uniqAt, at)
	}
}

// emit appends the request with a fresh opaque, born time and UNIQ_KEYs.
func (t *template) emit(b []byte, opaque int, now int64) []byte {
	at := len(b)
	b = append(b, t.raw...)
	m := b[at:]
	if t.bin {
		be.PutUint32(m[t.opaqueAt:], uint32(opaque))
	} else {
		strconv.AppendInt(m[t.opaqueAt:t.opaqueAt:t.opaqueAt+10], int64(opaque), 10)
	}
	if t.bornAt >= 0 {
		strconv.AppendInt(m[t.bornAt:t.bornAt:t.bornAt+13], now, 10)
	}
	if n := len(t.uniqAt); n > 0 {
		seq := uniqSeq.Add(uint64(n))
		for _, i := range t.uniqAt {
			for s, j := seq, i+15; j >= i; s, j = s>>4, j-1 {
				m[j] = "0123456789ABCDEF"[s&15]
			}
			seq--
		}
	}
	return b
}

func properties(o *options) string {
	var p []string
	add := func(k, v string) { p = append(p, k+"\x01"+v) }
	if o.keys != "" {
		add("KEYS", o.keys)
	}
	if o.uniq {
		add("UNIQ_KEY", uniqRun+strings.Repeat("0", 16))
	}
	add("WAIT", "true")
	if o.tags != "" {
		add("TAGS", o.tags)
	}
	return strings.Join(p, "\x02")
}

func payload(size int) []byte {
	b := make([]byte, size)
	rand.New(rand.NewSource(1)).Read(b)
	return b
}

func sendFields(o *options, queue int, props string, batch bool) []kv {
	return []kv{{"a", o.group}, {"b", o.topic}, {"c", "TBW102"}, {"d", strconv.Itoa(o.queues)}, {"e", strconv.Itoa(queue)},
		{"f", "0"}, {"g", strconv.Itoa(bornBase)}, {"h", "0"}, {"i", props}, {"j", "0"}, {"k", "false"}, {"m", strconv.FormatBool(batch)}}
}

// floodTemplates makes one template for each queue (send, batch) or the only one (ns).
func floodTemplates(o *options) (ts []*template) {
	flag := 0
	if o.oneway {
		flag = flagOneway
	}
	if o.mode == "ns" {
		return []*template{newTemplate(o.bin, codeRoute, 0, []kv{{"topic", o.topic}}, nil, 1, 0)}
	}
	body, props := payload(o.size), properties(o)
	if o.mode == "send" && o.topics > 1 { // a queue of each topic, so that there are not more files than topics
		for i := 0; i < o.topics; i++ {
			own := *o
			own.topic = fmt.Sprintf("%s%d", o.topic, i)
			ts = append(ts, newTemplate(o.bin, codeSend, flag, sendFields(&own, i%o.queues, props, false), body, 1, o.size))
		}
		return ts
	}
	for q := 0; q < o.queues; q++ {
		if o.mode == "send" {
			ts = append(ts, newTemplate(o.bin, codeSend, flag, sendFields(o, q, props, false), body, 1, o.size))
			continue
		}
		var b []byte // total size, magic, CRC (both zero), flag, body size, body, properties size, properties
		for i := 0; i < o.k; i++ {
			b = be.AppendUint32(b, uint32(22+len(body)+len(props)))
			b = append(b, make([]byte, 12)...)
			b = append(be.AppendUint32(b, uint32(len(body))), body...)
			b = append(be.AppendUint16(b, uint16(len(props))), props...)
		}
		ts = append(ts, newTemplate(o.bin, codeSendBatch, flag, sendFields(o, q, "WAIT\x01true", true), b, o.k, o.k*o.size))
	}
	return ts
}
