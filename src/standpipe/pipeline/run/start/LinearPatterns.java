package standpipe;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.api.java.UDF3;

/**
 * REGEXP_EXTRACT, _EXTRACT_ALL, _REPLACE and _SPLIT_TO_ARRAY in linear time, by the RE2/J that
 * Hadoop brings; and LIKE, as sql/expressions/like.py has it. A regular expression is read by Java's rules and written again for RE2, as
 * sql/functions/regular_expressions.py does it and explains it; the two must agree. What has no
 * linear form, or takes too many steps, gives NULL, as ksqlDB gives for a pattern that throws.
 * Compiled by session_functions.py, with Spark's Janino, which has no lambdas.
 */
public class LinearPatterns implements UDF3 {
    private static final int CHARS_MAX = 1000;
    private static final int SIZE_MAX = 1000;
    private static final int COUNT_MAX = 1000;
    private static final int DEPTH_MAX = 40;
    private static final int GROUPS_MAX = 50;
    private static final int CACHED_MAX = 256;
    private static final String RE2 = "org.apache.hadoop.shaded.com.google.re2j.RE2";
    private static final Method COMPILE = method("compile", new Class[] {String.class});
    private static final Method MATCH = method("match", new Class[] {
        CharSequence.class, int.class, int.class, int.class, int[].class, int.class});
    private static final Map CACHE = Collections.synchronizedMap(new LinkedHashMap() {
        protected boolean removeEldestEntry(Map.Entry eldest) {
            return size() > CACHED_MAX;
        }
    });

    private final String what;
    private final long stepsMax;
    private final int charsMax;

    /** what: EXTRACT, ALL, REPLACE, SPLIT or LIKE; stepsMax: of one call; charsMax: of a result. */
    public LinearPatterns(String what, long stepsMax, int charsMax) {
        this.what = what;
        this.stepsMax = stepsMax;
        this.charsMax = charsMax;
    }

    /** Pattern, text, and a group, a replacement or LIKE's escape. */
    public Object call(Object pattern, Object text, Object third) {
        if (pattern == null || text == null || third == null) {
            return null;
        }
        try {
            if (what.equals("LIKE")) {
                return Boolean.valueOf(
                    new Like((String) pattern, (String) third, stepsMax).matches((String) text));
            }
            Run run = new Run(compiled((String) pattern), (String) text, stepsMax, charsMax);
            if (what.equals("EXTRACT")) {
                return run.extract(((Integer) third).intValue());
            }
            if (what.equals("ALL")) {
                return run.all(((Integer) third).intValue());
            }
            return what.equals("SPLIT") ? (Object) run.split() : run.replace((String) third);
        } catch (Refused refused) {
            return null;
        }
    }

    private static Method method(String name, Class[] parameters) {
        try {
            Method found = Class.forName(RE2).getDeclaredMethod(name, parameters);
            found.setAccessible(true);
            return found;
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("Spark's Hadoop has no RE2/J", error);
        }
    }

    private static Object invoked(Method method, Object on, Object[] arguments) {
        try {
            return method.invoke(on, arguments);
        } catch (java.lang.reflect.InvocationTargetException error) {
            if (error.getCause() instanceof Error) {
                throw (Error) error.getCause();
            }
            throw new Refused();
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        }
    }

    private static Compiled compiled(String pattern) {
        Object known = CACHE.get(pattern);
        if (known == null) {
            try {
                known = new Reader(withoutQuotes(pattern)).whole();
            } catch (Refused refused) {
                known = refused;
            }
            CACHE.put(pattern, known);
        }
        if (known instanceof Refused) {
            throw (Refused) known;
        }
        return (Compiled) known;
    }

    static String withoutQuotes(String pattern) {
        StringBuilder made = new StringBuilder();
        boolean quotes = false;
        for (int at = 0; at < pattern.length(); at++) {
            char each = pattern.charAt(at);
            if (quotes) {
                if (pattern.startsWith("\\E", at)) {
                    quotes = false;
                    at++;
                } else {
                    made.append(isPlain(each) || each > 127 ? "" : "\\").append(each);
                }
            } else if (each == '\\' && at + 1 < pattern.length()) {
                at++;
                quotes = pattern.charAt(at) == 'Q';
                if (!quotes) {
                    made.append(each).append(pattern.charAt(at));
                }
            } else {
                made.append(each);
            }
        }
        return made.toString();
    }

    static boolean isPlain(int code) {
        return code >= '0' && code <= '9' || isLetter(code);
    }

    static boolean isLetter(int code) {
        return code >= 'a' && code <= 'z' || code >= 'A' && code <= 'Z';
    }

    /** The pattern cannot be matched in linear time, or it takes too long, or the result is too
     *  large. */
    static class Refused extends RuntimeException {
        Refused() {
            super(null, null, false, false);
        }
    }

    static class Compiled {
        Object re2;
        int groups;
        long cost;
        Map names;
        boolean fitsNothing;
    }

    /** A text whose characters are counted as they are read, each with what it costs. */
    static class Counted implements CharSequence {
        private final String text;
        private final long cost;
        private long left;

        Counted(String text, long cost, long left) {
            this.text = text;
            this.cost = cost;
            this.left = left;
        }

        public char charAt(int at) {
            left -= cost;
            if (left < 0) {
                throw new Refused();
            }
            return text.charAt(at);
        }

        public int length() {
            return text.length();
        }

        public CharSequence subSequence(int start, int end) {
            return text.substring(start, end);
        }

        public String toString() {
            return text;
        }
    }

    /** One call. */
    static class Run {
        private final Compiled pattern;
        private final String text;
        private final Counted counted;
        private final int charsMax;
        private int[] found;
        private int next = 0;

        Run(Compiled pattern, String text, long stepsMax, int charsMax) {
            this.pattern = pattern;
            this.text = text;
            this.counted = new Counted(text, pattern.cost, stepsMax);
            this.charsMax = charsMax;
        }

        /** The next match, with groups up to this one. */
        private boolean find(int group) {
            if (next > text.length()) {
                return false;
            }
            found = new int[2 * (group + 1)];
            java.util.Arrays.fill(found, -1);
            if (!matched(pattern.re2, counted, next, found)) {
                return false;
            }
            next = found[1];
            if (found[0] == found[1]) {
                next += next < text.length() && Character.isHighSurrogate(text.charAt(next))
                    && next + 1 < text.length() ? 2 : 1;
            }
            return true;
        }

        private String group(int number) {
            return found[2 * number] < 0
                ? null : text.substring(found[2 * number], found[2 * number + 1]);
        }

        private void check(int group) {
            if (group < 0 || group > pattern.groups) {
                throw new Refused();
            }
        }

        String extract(int group) {
            check(group);
            return find(group) ? group(group) : null;
        }

        List all(int group) {
            check(group);
            List made = new ArrayList();
            while (find(group)) {
                made.add(group(group));
            }
            return made;
        }

        /** Java's split for a pattern that fits nothing, Guava's Splitter for any other. */
        List split() {
            List made = new ArrayList();
            int start = 0;
            while (find(0)) {
                boolean isEmpty = found[0] == found[1];
                boolean skips = pattern.fitsNothing
                    ? start == 0 && found[1] == 0
                    : isEmpty && (found[0] == start || found[0] == text.length());
                if (!skips) {
                    made.add(text.substring(start, found[0]));
                    start = found[1];
                }
            }
            made.add(text.substring(start));
            if (pattern.fitsNothing && start > 0) {
                while (!made.isEmpty() && ((String) made.get(made.size() - 1)).isEmpty()) {
                    made.remove(made.size() - 1);
                }
            }
            return made;
        }

        String replace(String replacement) {
            StringBuilder made = new StringBuilder();
            List parts = null;
            int start = 0;
            while (find(pattern.groups)) {
                if (parts == null) {
                    parts = Replacement.parts(replacement, pattern);
                }
                made.append(text, start, found[0]);
                for (Object part : parts) {
                    String added = part instanceof String
                        ? (String) part : group(((Integer) part).intValue());
                    made.append(added == null ? "" : added);
                }
                start = found[1];
                if (made.length() > charsMax) {
                    throw new Refused();
                }
            }
            return made.append(text, start, text.length()).toString();
        }
    }

    /** A LIKE pattern, cut at each % into pieces of a fixed length: each is taken at its first
     *  place behind the one before it, so no other place has to be tried. */
    static class Like {
        private static final int ANY = -1;
        private final List pieces = new ArrayList();
        private long left;

        /** escape: one character, or empty for none. */
        Like(String pattern, String escape, long stepsMax) {
            left = stepsMax;
            int[] characters = pattern.codePoints().toArray();
            int[] piece = new int[characters.length];
            int size = 0;
            int mark = escape.isEmpty() ? ANY : escape.codePointAt(0);
            for (int at = 0; at < characters.length; at++) {
                if (characters[at] == mark) {
                    if (++at < characters.length) {
                        piece[size++] = characters[at];
                    }
                } else if (characters[at] == '%') {
                    pieces.add(java.util.Arrays.copyOf(piece, size));
                    size = 0;
                } else {
                    piece[size++] = characters[at] == '_' ? ANY : characters[at];
                }
            }
            pieces.add(java.util.Arrays.copyOf(piece, size));
        }

        boolean matches(String given) {
            int[] text = given.codePoints().toArray();
            int[] first = (int[]) pieces.get(0);
            int[] last = (int[]) pieces.get(pieces.size() - 1);
            if (!isAt(text, first, 0)) {
                return false;
            }
            if (pieces.size() == 1) {
                return text.length == first.length;
            }
            int at = first.length;
            for (int each = 1; each < pieces.size() - 1; each++) {
                int[] piece = (int[]) pieces.get(each);
                while (!isAt(text, piece, at)) {
                    if (++at > text.length) {
                        return false;
                    }
                }
                at += piece.length;
            }
            int end = text.length - last.length;
            return at <= end && isAt(text, last, end);
        }

        private boolean isAt(int[] text, int[] piece, int at) {
            if (at + piece.length > text.length) {
                return false;
            }
            for (int each = 0; each < piece.length; each++) {
                if (--left < 0) {
                    throw new Refused();
                }
                if (piece[each] != ANY && piece[each] != text[at + each]) {
                    return false;
                }
            }
            return true;
        }
    }

    static boolean matched(Object re2, CharSequence text, int start, int[] found) {
        return ((Boolean) invoked(MATCH, re2, new Object[] {
            text, Integer.valueOf(start), Integer.valueOf(text.length()), Integer.valueOf(0),
            found, Integer.valueOf(found.length / 2)})).booleanValue();
    }

    /** Java's replacements: $1, ${name}, and a backslash before a character. */
    static class Replacement {
        static List parts(String text, Compiled pattern) {
            List made = new ArrayList();
            int at = 0;
            while (at < text.length()) {
                char each = text.charAt(at++);
                if (each != '$' && each != '\\') {
                    made.add(String.valueOf(each));
                } else if (at == text.length()) {
                    throw new Refused();
                } else if (each == '\\') {
                    made.add(String.valueOf(text.charAt(at++)));
                } else if (text.charAt(at) == '{') {
                    int end = text.indexOf('}', at);
                    Object group = end < 0 ? null : pattern.names.get(text.substring(at + 1, end));
                    if (group == null) {
                        throw new Refused();
                    }
                    made.add(group);
                    at = end + 1;
                } else {
                    int group = digit(text, at);
                    if (group < 0 || group > pattern.groups) {
                        throw new Refused();
                    }
                    at++;
                    while (digit(text, at) >= 0
                            && group * 10 + digit(text, at) <= pattern.groups) {
                        group = group * 10 + digit(text, at++);
                    }
                    made.add(Integer.valueOf(group));
                }
            }
            return made;
        }

        private static int digit(String text, int at) {
            int each = at < text.length() ? (int) text.charAt(at) : -1;
            return each >= '0' && each <= '9' ? each - '0' : -1;
        }
    }

    /** A part of a pattern in RE2's syntax, and how many states it has. */
    static class Part {
        final String text;
        final int size;
        boolean takesQuantifier = true;
        boolean mayBeEmpty = false;

        Part(String text, int size) {
            if (size > SIZE_MAX) {
                throw new Refused();
            }
            this.text = text;
            this.size = size;
        }
    }

    /** Which flags hold: i, s and d. */
    static class Flags {
        boolean ignoresCase;
        boolean dotIsAll;
        boolean unixLines;

        Flags copy() {
            Flags made = new Flags();
            made.ignoresCase = ignoresCase;
            made.dotIsAll = dotIsAll;
            made.unixLines = unixLines;
            return made;
        }

        void set(int letter, boolean value) {
            if (letter == 'i') {
                ignoresCase = value;
            } else if (letter == 's') {
                dotIsAll = value;
            } else if (letter == 'd') {
                unixLines = value;
            } else if (value || !isLetter(letter)) {
                throw new Refused();
            }
        }
    }

    /** Reads a pattern from left to right. */
    static class Reader {
        private static final int LAST = 0x10FFFF;
        private static final int[] DIGITS = {'0', '9'};
        private static final int[] WORD = {'0', '9', 'A', 'Z', '_', '_', 'a', 'z'};
        private static final int[] SPACE = {9, 13, 32, 32};
        private static final int[] BREAKS = {10, 10, 13, 13, 0x85, 0x85, 0x2028, 0x2029};
        private static final int[] VERTICAL = {10, 13, 0x85, 0x85, 0x2028, 0x2029};
        private static final int[] HORIZONTAL = {
            9, 9, 32, 32, 0xA0, 0xA0, 0x1680, 0x1680, 0x180E, 0x180E, 0x2000, 0x200A,
            0x202F, 0x202F, 0x205F, 0x205F, 0x3000, 0x3000};
        private static final Map POSIX = posix();

        private final String pattern;
        private int at = 0;
        private int groups = 0;
        private int depth = 0;
        private final Map names = new HashMap();

        Reader(String pattern) {
            this.pattern = pattern;
        }

        private static Map posix() {
            Map made = new HashMap();
            made.put("Lower", new int[] {'a', 'z'});
            made.put("Upper", new int[] {'A', 'Z'});
            made.put("ASCII", new int[] {0, 127});
            made.put("Alpha", new int[] {'A', 'Z', 'a', 'z'});
            made.put("Digit", DIGITS);
            made.put("Alnum", new int[] {'0', '9', 'A', 'Z', 'a', 'z'});
            made.put("Punct", new int[] {33, 47, 58, 64, 91, 96, 123, 126});
            made.put("Graph", new int[] {33, 126});
            made.put("Print", new int[] {32, 126});
            made.put("Blank", new int[] {9, 9, 32, 32});
            made.put("Cntrl", new int[] {0, 31, 127, 127});
            made.put("XDigit", new int[] {'0', '9', 'A', 'F', 'a', 'f'});
            made.put("Space", SPACE);
            return made;
        }

        Compiled whole() {
            if (pattern.codePointCount(0, pattern.length()) > CHARS_MAX) {
                throw new Refused();
            }
            Part part = alternation(new Flags());
            if (at < pattern.length() || groups > GROUPS_MAX) {
                throw new Refused();
            }
            Compiled made = new Compiled();
            made.re2 = invoked(COMPILE, null, new Object[] {part.text});
            made.groups = groups;
            made.names = names;
            made.cost = (long) part.size * (1 + groups / 4);
            made.fitsNothing = matched(made.re2, "", 0, new int[2]);
            return made;
        }

        private int peek(int ahead) {
            return at + ahead < pattern.length() ? (int) pattern.charAt(at + ahead) : -1;
        }

        private boolean next(String text) {
            boolean found = pattern.startsWith(text, at);
            at += found ? text.length() : 0;
            return found;
        }

        private int code() {
            if (at >= pattern.length()) {
                throw new Refused();
            }
            int code = pattern.codePointAt(at);
            at += Character.charCount(code);
            return whole(code);
        }

        private static int whole(int code) {
            if (code >= 0xD800 && code <= 0xDFFF || code > LAST) {
                throw new Refused();
            }
            return code;
        }

        private Part alternation(Flags flags) {
            Part first = sequence(flags);
            StringBuilder text = new StringBuilder(first.text);
            int size = first.size + 1;
            boolean mayBeEmpty = first.mayBeEmpty;
            if (peek(0) != '|') {
                return first;
            }
            while (next("|")) {
                Part branch = sequence(flags);
                text.append("|").append(branch.text);
                size += branch.size + 1;
                mayBeEmpty = mayBeEmpty || branch.mayBeEmpty;
            }
            Part made = new Part(text.toString(), size);
            made.mayBeEmpty = mayBeEmpty;
            return made;
        }

        private Part sequence(Flags flags) {
            StringBuilder text = new StringBuilder();
            int size = 0;
            boolean mayBeEmpty = true;
            while (at < pattern.length() && peek(0) != '|' && peek(0) != ')') {
                if (!flagsAlone(flags)) {
                    int before = groups;
                    Part atom = atom(flags);
                    Part part = quantified(atom, groups > before);
                    text.append(part.text);
                    size = new Part("", size + part.size).size;
                    mayBeEmpty = mayBeEmpty && part.mayBeEmpty;
                }
            }
            Part made = new Part(text.toString(), size);
            made.mayBeEmpty = mayBeEmpty;
            return made;
        }

        /** (?i) and others alone: they hold until the end of the group. */
        private boolean flagsAlone(Flags flags) {
            int end = flagsEnd();
            if (end < 0 || pattern.charAt(end) != ')') {
                return false;
            }
            change(flags, end);
            return true;
        }

        /** Where the flags after (? end, with a colon or a parenthesis; -1: there are none. */
        private int flagsEnd() {
            if (!pattern.startsWith("(?", at)) {
                return -1;
            }
            int end = at + 2;
            boolean off = false;
            while (end < pattern.length()
                    && (isLetter(pattern.charAt(end)) || pattern.charAt(end) == '-' && !off)) {
                off = off || pattern.charAt(end) == '-';
                end++;
            }
            return end < pattern.length() && ":)".indexOf(pattern.charAt(end)) >= 0 ? end : -1;
        }

        private void change(Flags flags, int end) {
            boolean value = true;
            for (int each = at + 2; each < end; each++) {
                if (pattern.charAt(each) == '-') {
                    value = false;
                } else {
                    flags.set(pattern.charAt(each), value);
                }
            }
            at = end + 1;
        }

        private Part group(Flags outer) {
            Flags flags = outer.copy();
            String opening = "(?:";
            int end = flagsEnd();
            if (end >= 0) {
                change(flags, end);
            } else {
                opening = "(";
                groups++;
                if (pattern.startsWith("(?", at)) {
                    name();
                } else {
                    at++;
                }
            }
            if (++depth > DEPTH_MAX) {
                throw new Refused();
            }
            Part inner = alternation(flags);
            depth--;
            if (!next(")")) {
                throw new Refused();
            }
            Part made = new Part(opening + inner.text + ")", inner.size + 2);
            made.mayBeEmpty = inner.mayBeEmpty;
            return made;
        }

        private void name() {
            int end = pattern.indexOf('>', at);
            if (!pattern.startsWith("(?<", at) || end < 0) {
                throw new Refused();
            }
            String name = pattern.substring(at + 3, end);
            for (int each = 0; each < name.length(); each++) {
                if (each == 0 ? !isLetter(name.charAt(0)) : !isPlain(name.charAt(each))) {
                    throw new Refused();
                }
            }
            if (name.isEmpty() || names.put(name, Integer.valueOf(groups)) != null) {
                throw new Refused();
            }
            at = end + 1;
        }

        private Part quantified(Part part, boolean hasGroups) {
            int start = at;
            int[] counts = counts();
            if (counts == null) {
                return part;
            }
            String text = pattern.substring(start, at);
            if (!part.takesQuantifier || next("+")) {
                throw new Refused();
            }
            String lazy = next("?") ? "?" : "";
            if (counts() != null) {
                throw new Refused();
            }
            if (part.mayBeEmpty && hasGroups && counts[1] != 1) {
                throw new Refused();
            }
            int most = Math.max(1, Math.max(counts[0], counts[1]));
            Part made = new Part(part.text + text + lazy, part.size * most + 1);
            made.mayBeEmpty = part.mayBeEmpty || counts[0] == 0;
            return made;
        }

        /** Least and most, -1: no bound; null if no quantifier comes next. */
        private int[] counts() {
            if (next("*")) {
                return new int[] {0, -1};
            }
            if (next("+")) {
                return new int[] {1, -1};
            }
            if (next("?")) {
                return new int[] {0, 1};
            }
            int end = peek(0) == '{' ? pattern.indexOf('}', at) : -1;
            if (end < 0) {
                return null;
            }
            String text = pattern.substring(at + 1, end);
            int comma = text.indexOf(',');
            int least = count(comma < 0 ? text : text.substring(0, comma));
            int most = comma < 0 ? least
                : comma == text.length() - 1 ? -1 : count(text.substring(comma + 1));
            if (most >= 0 && most < least) {
                throw new Refused();
            }
            at = end + 1;
            return new int[] {least, most};
        }

        private static int count(String text) {
            int made = 0;
            for (int each = 0; each < text.length(); each++) {
                if (text.charAt(each) < '0' || text.charAt(each) > '9' || text.length() > 9) {
                    throw new Refused();
                }
                made = made * 10 + text.charAt(each) - '0';
            }
            if (text.isEmpty() || made > COUNT_MAX) {
                throw new Refused();
            }
            return made;
        }

        private Part atom(Flags flags) {
            int first = peek(0);
            if (first == '(') {
                return group(flags);
            }
            if (first == '[') {
                return bracketed(flags);
            }
            if ("*+?{".indexOf(first) >= 0) {
                throw new Refused();
            }
            if (first == '\\') {
                return escape(flags);
            }
            int code = code();
            if (code == '^' || code == '$') {
                return noWidth(code == '^' ? "\\A" : "\\z");
            }
            if (code == '.') {
                if (flags.dotIsAll) {
                    return new Part("(?s:.)", 4);
                }
                Ranges breaks = new Ranges();
                breaks.add(flags.unixLines ? new int[] {10, 10} : BREAKS);
                return breaks.part(true);
            }
            return one(code, flags);
        }

        private static Part noWidth(String text) {
            Part made = new Part(text, 1);
            made.takesQuantifier = false;
            made.mayBeEmpty = true;
            return made;
        }

        private static Part one(int code, Flags flags) {
            if (!flags.ignoresCase || !isLetter(code)) {
                return new Part(written(code), 1);
            }
            Ranges both = new Ranges();
            both.add(new int[] {code, code});
            both.addCases();
            return both.part(false);
        }

        private Part escape(Flags flags) {
            int letter = peek(1);
            if (letter == 'A' || letter == 'z' || letter == 'b' || letter == 'B') {
                at += 2;
                return noWidth("\\" + (char) letter);
            }
            if (letter == 'R') {
                at += 2;
                return new Part("(?:\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])", 8);
            }
            int code = escapedCode();
            if (code >= 0) {
                return one(code, flags);
            }
            Ranges ranges = new Ranges();
            escapedClass(flags, ranges);
            return ranges.part(false);
        }

        /** The character that an escape stands for; -1 if it stands for a class. */
        private int escapedCode() {
            at++;
            int letter = peek(0);
            if (!isPlain(letter)) {
                return code();
            }
            int plain = "tnrfae".indexOf(letter);
            if (plain >= 0) {
                at++;
                return "\t\n\r\f\u0007\u001b".charAt(plain);
            }
            if (letter == 'c' && peek(1) >= 0) {
                at++;
                return whole(code() ^ 64);
            }
            if (letter == '0') {
                return octal();
            }
            if (letter == 'x' && peek(1) == '{') {
                int end = pattern.indexOf('}', at);
                if (end < 0 || end - at > 8) {
                    throw new Refused();
                }
                return hex(at + 2, end, end + 1);
            }
            if (letter == 'x' || letter == 'u') {
                int end = at + (letter == 'x' ? 3 : 5);
                return hex(at + 1, end, end);
            }
            return -1;
        }

        private int octal() {
            int made = 0;
            int digits = 0;
            at++;
            int most = peek(0) >= '0' && peek(0) <= '3' ? 3 : 2;
            while (digits < most && peek(0) >= '0' && peek(0) <= '7') {
                made = made * 8 + peek(0) - '0';
                at++;
                digits++;
            }
            if (digits == 0) {
                throw new Refused();
            }
            return made;
        }

        private int hex(int start, int end, int after) {
            if (end > pattern.length() || start >= end) {
                throw new Refused();
            }
            int made = 0;
            for (int each = start; each < end; each++) {
                char character = pattern.charAt(each);
                int digit = character > 127 ? -1 : Character.digit(character, 16);
                if (digit < 0) {
                    throw new Refused();
                }
                made = made * 16 + digit;
            }
            at = after;
            return whole(made);
        }

        private void escapedClass(Flags flags, Ranges ranges) {
            int letter = peek(0);
            boolean isNegated = letter < 'a';
            int kind = Character.toLowerCase(letter);
            int[] known = kind == 'd' ? DIGITS : kind == 'w' ? WORD : kind == 's' ? SPACE
                : kind == 'h' ? HORIZONTAL : kind == 'v' ? VERTICAL : null;
            if (known != null) {
                at++;
                ranges.add(isNegated ? Ranges.complement(known) : known);
                return;
            }
            if (kind != 'p') {
                throw new Refused();
            }
            int end = at + 2;
            String name = pattern.substring(at + 1, Math.min(end, pattern.length()));
            if (peek(1) == '{') {
                end = pattern.indexOf('}', at) + 1;
                name = end == 0 ? "" : pattern.substring(at + 2, end - 1);
            }
            if (!POSIX.containsKey(name) && name.startsWith("Is")) {
                name = name.substring(2);
            }
            String ofCase = " Lower Upper Lu Ll Lt ";
            if (flags.ignoresCase && ofCase.contains(" " + name + " ")) {
                throw new Refused();
            }
            known = (int[]) POSIX.get(name);
            if (known != null) {
                ranges.add(isNegated ? Ranges.complement(known) : known);
            } else if (isCategory(name)) {
                ranges.categories.add("\\" + (char) letter + "{" + name + "}");
            } else {
                throw new Refused();
            }
            at = end;
        }

        private static boolean isCategory(String name) {
            String kinds = "L:ultmo M:nce N:dlo P:cdseifo S:mcko Z:slp ";
            int place = name.isEmpty() || !isLetter(name.charAt(0))
                ? -1 : kinds.indexOf(name.charAt(0) + ":");
            return place >= 0 && (name.length() == 1 || name.length() == 2
                && isLetter(name.charAt(1))
                && kinds.substring(place + 2, kinds.indexOf(' ', place))
                    .indexOf(name.charAt(1)) >= 0);
        }

        private Part bracketed(Flags flags) {
            at++;
            boolean isNegated = next("^");
            Ranges ranges = new Ranges();
            if (next("]")) {
                range(']', flags, ranges);
            }
            while (!next("]")) {
                int low = classItem(flags, ranges);
                if (low >= 0) {
                    range(low, flags, ranges);
                }
            }
            if (flags.ignoresCase) {
                ranges.addCases();
            }
            return ranges.part(isNegated);
        }

        private void range(int low, Flags flags, Ranges ranges) {
            int high = low;
            if (peek(0) == '-' && peek(1) >= 0 && peek(1) != '[' && peek(1) != ']') {
                at++;
                high = classItem(flags, new Ranges());
            }
            if (high < low) {
                throw new Refused();
            }
            ranges.add(new int[] {low, high});
        }

        /** One character; -1 for a class, which is added. */
        private int classItem(Flags flags, Ranges ranges) {
            if (peek(0) == '[' || pattern.startsWith("&&", at)) {
                throw new Refused();
            }
            if (peek(0) != '\\') {
                return code();
            }
            int code = escapedCode();
            if (code < 0) {
                escapedClass(flags, ranges);
            }
            return code;
        }
    }

    static String written(int code) {
        return isPlain(code)
            ? String.valueOf((char) code)
            : "\\x{" + Integer.toHexString(code).toUpperCase() + "}";
    }

    /** What a class has. */
    static class Ranges {
        final List ranges = new ArrayList();
        final List categories = new ArrayList();

        void add(int[] bounds) {
            for (int each = 0; each < bounds.length; each += 2) {
                ranges.add(new int[] {bounds[each], bounds[each + 1]});
            }
        }

        static int[] complement(int[] bounds) {
            int[] made = new int[bounds.length + 2];
            int size = 0;
            int start = 0;
            for (int each = 0; each < bounds.length; each += 2) {
                if (start < bounds[each]) {
                    made[size++] = start;
                    made[size++] = bounds[each] - 1;
                }
                start = bounds[each + 1] + 1;
            }
            made[size++] = start;
            made[size++] = Reader.LAST;
            return java.util.Arrays.copyOf(made, size);
        }

        /** The other case of each ASCII letter. */
        void addCases() {
            for (Object each : new ArrayList(ranges)) {
                int[] range = (int[]) each;
                shifted(range, 'A', 'Z', 32);
                shifted(range, 'a', 'z', -32);
            }
        }

        private void shifted(int[] range, int first, int last, int shift) {
            int low = Math.max(range[0], first);
            int high = Math.min(range[1], last);
            if (low <= high) {
                ranges.add(new int[] {low + shift, high + shift});
            }
        }

        Part part(boolean isNegated) {
            StringBuilder made = new StringBuilder(isNegated ? "[^" : "[");
            for (Object each : ranges) {
                int[] range = (int[]) each;
                made.append(written(range[0]));
                if (range[1] > range[0]) {
                    made.append("-").append(written(range[1]));
                }
            }
            for (Object each : categories) {
                made.append(each);
            }
            return new Part(
                made.append("]").toString(), 4 + ranges.size() + 64 * categories.size());
        }
    }
}
