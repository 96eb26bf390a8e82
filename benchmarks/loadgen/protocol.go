// The remoting protocol as far as the loads need it: frames, replies, and the messages of a pull body.

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
)

const (
	codePull, codeCreateTopic, codeMaxOffset, codeHeartbeat = 11, 17, 30, 34
	codeRoute, codeSend, codeSendBatch                      = 105, 310, 320

	codeSuccess, codePullRetry = 0, 20

	languageGo, protocolVersion = 9, 399 // 399 is V4_9_3
	flagOneway                  = 2

	opaqueBase = 1_000_000_000     // ten digits, so that it can be patched in place in a JSON header too
	bornBase   = 1_700_000_000_000 // thirteen digits, likewise
)

type kv struct{ k, v string }

var be = binary.BigEndian

// frame builds one whole request: length, serialize type and header length, header, body.
func frame(bin bool, code, opaque, flag int, ext []kv, body []byte) []byte {
	b := make([]byte, 8, 512+len(body))
	kind := uint32(0)
	if bin {
		kind = 1 << 24
		b = be.AppendUint16(b, uint16(code))
		b = append(b, languageGo)
		b = be.AppendUint16(b, protocolVersion)
		b = be.AppendUint32(b, uint32(opaque))
		b = be.AppendUint32(b, uint32(flag))
		b = be.AppendUint32(b, 0) // no remark
		at := len(b)
		b = be.AppendUint32(b, 0)
		for _, e := range ext {
			b = be.AppendUint16(b, uint16(len(e.k)))
			b = append(b, e.k...)
			b = be.AppendUint32(b, uint32(len(e.v)))
			b = append(b, e.v...)
		}
		be.PutUint32(b[at:], uint32(len(b)-at-4))
	} else {
		b = fmt.Appendf(b, `{"code":%d,"extFields":{`, code)
		for i, e := range ext {
			if i > 0 {
				b = append(b, ',')
			}
			k, _ := json.Marshal(e.k)
			v, _ := json.Marshal(e.v)
			b = append(append(append(b, k...), ':'), v...)
		}
		b = fmt.Appendf(b, `},"flag":%d,"language":"GO","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":%d}`, flag, opaque, protocolVersion)
	}
	head := len(b) - 8
	b = append(b, body...)
	be.PutUint32(b, uint32(len(b)-4))
	be.PutUint32(b[4:], kind|uint32(head))
	return b
}

// reply is one received command; its bytes are those of the link's buffer and last until the next read.
type reply struct {
	bin                bool
	code, opaque, flag int
	head, body         []byte
}

func parseReply(f []byte) (r reply, err error) {
	if len(f) < 4 {
		return r, errors.New("frame without a header length")
	}
	word := be.Uint32(f)
	n := int(word & 0xffffff)
	if n > len(f)-4 || word>>24 > 1 {
		return r, fmt.Errorf("bad header word %#x in a frame of %d bytes", word, len(f))
	}
	r.bin, r.head, r.body = word>>24 == 1, f[4:4+n], f[4+n:]
	if r.bin {
		if n < 21 {
			return r, errors.New("short binary header")
		}
		r.code = int(int16(be.Uint16(r.head)))
		r.opaque, r.flag = int(int32(be.Uint32(r.head[5:]))), int(be.Uint32(r.head[9:]))
		return r, nil
	}
	code, ok1 := jsonInt(r.head, `"code"`)
	opaque, ok2 := jsonInt(r.head, `"opaque"`)
	flag, ok3 := jsonInt(r.head, `"flag"`)
	if !ok1 || !ok2 || !ok3 {
		return r, fmt.Errorf("JSON header without code, opaque or flag: %.200q", r.head)
	}
	r.code, r.opaque, r.flag = int(code), int(opaque), int(flag)
	return r, nil
}

// jsonInt finds the number (bare or quoted) under a key; a key inside a string value has its quotes escaped, so it cannot match.
func jsonInt(b []byte, key string) (int64, bool) {
	i := bytes.Index(b, []byte(key))
	if i < 0 {
		return 0, false
	}
	s := bytes.TrimLeft(b[i+len(key):], " :\"")
	j := 0
	for j < len(s) && (s[j] == '-' || s[j] >= '0' && s[j] <= '9') {
		j++
	}
	v, err := strconv.ParseInt(string(s[:j]), 10, 64)
	return v, err == nil
}

// ext reads one number of the response header's extension fields.
func (r *reply) ext(key string) (int64, error) {
	if !r.bin {
		if v, ok := jsonInt(r.head, `"`+key+`"`); ok {
			return v, nil
		}
		return 0, fmt.Errorf("no %s in %.200q", key, r.head)
	}
	b := r.head[13:]
	skip := 4 + int(be.Uint32(b)) // the remark
	if skip+4 > len(b) {
		return 0, errors.New("bad remark length")
	}
	for b = b[skip+4:]; len(b) >= 6; {
		n := int(be.Uint16(b))
		if 6+n > len(b) {
			break
		}
		m := int(be.Uint32(b[2+n:]))
		if m < 0 || 6+n+m > len(b) {
			break
		}
		if string(b[2:2+n]) == key {
			return strconv.ParseInt(string(b[6+n:6+n+m]), 10, 64)
		}
		b = b[6+n+m:]
	}
	return 0, fmt.Errorf("no %s in the binary header", key)
}

// message is what a pull needs of a stored message.
type message struct {
	queue  int
	offset int64
	body   []byte
	crcOK  bool
}

// walk visits every message of a pull body.
func walk(b []byte, visit func(message)) error {
	for len(b) > 0 {
		if len(b) < 4 || int(be.Uint32(b)) > len(b) || be.Uint32(b) < 91 {
			return fmt.Errorf("bad message size with %d bytes left", len(b))
		}
		m := b[:be.Uint32(b)]
		b = b[len(m):]
		if magic := be.Uint32(m[4:]); magic != 0xdaa320a7 {
			return fmt.Errorf("bad magic %#x", magic)
		}
		sys, at := be.Uint32(m[36:]), 84
		if sys&(1<<4) != 0 {
			at += 12 // born host is IPv6
		}
		if sys&(1<<5) != 0 {
			at += 12 // store host is IPv6
		}
		size := int(be.Uint32(m[at:]))
		if size < 0 || at+4+size+3 > len(m) {
			return errors.New("bad body size")
		}
		body := m[at+4 : at+4+size]
		visit(message{int(be.Uint32(m[12:])), int64(be.Uint64(m[20:])), body,
			crc32.ChecksumIEEE(body)&0x7fffffff == be.Uint32(m[8:])&0x7fffffff})
	}
	return nil
}
