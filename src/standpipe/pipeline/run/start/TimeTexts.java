package standpipe;

import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeFormatterBuilder;
import java.time.temporal.ChronoField;
import java.time.temporal.TemporalAccessor;
import java.time.temporal.TemporalQueries;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.api.java.UDF3;

/**
 * ksqlDB's functions that read and show dates and times by a pattern: java.time as it is configured
 * there, which takes the 30th of February for the last day of that month, and a lenient reader for
 * PARSE_DATE, for which it is the 1st or 2nd of March. Spark's own refuse both, and they show no
 * zone but the session's. The same in Python: sql/expressions/python/java_times.py and formats.py.
 * Compiled by session_functions.py.
 */
public class TimeTexts implements UDF3 {
    private static final int FORMATTERS_MAX = 512;
    /** Spark's instants are microseconds. */
    private static final long INSTANT_MS_MAX = Long.MAX_VALUE / 1000 - 1;
    private static final long DAYS_MAX = INSTANT_MS_MAX / 86400000 - 1;
    private static final Map FORMATTERS = Collections.synchronizedMap(new LinkedHashMap() {
        protected boolean removeEldestEntry(Map.Entry eldest) {
            return size() > FORMATTERS_MAX;
        }
    });
    private static final String[] MONTHS = new String[] {
        "january", "february", "march", "april", "may", "june", "july", "august", "september",
        "october", "november", "december"};

    private final String what;
    private final int century;

    /**
     * what: DATE, LENIENT_DATE, TIME or INSTANT, which is read; SHOWN_DATE, SHOWN_TIME or
     * SHOWN_INSTANT. century: the first year that yy may mean.
     */
    public TimeTexts(String what, Integer century) {
        this.what = what;
        this.century = century.intValue();
    }

    /** What is read or shown, a pattern, and a zone; null where ksqlDB's throw. */
    public Object call(Object text, Object pattern, Object zone) {
        if (text == null || pattern == null || zone == null) {
            return null;
        }
        try {
            if (what.startsWith("SHOWN_")) {
                return shown(((Number) text).longValue(), (String) pattern, (String) zone);
            }
            if (what.equals("LENIENT_DATE")) {
                return inRange(lenient((String) text, (String) pattern));
            }
            TemporalAccessor parsed = formatter((String) pattern).parse((String) text);
            if (what.equals("DATE")) {
                return inRange(LocalDate.from(parsed).toEpochDay());
            }
            if (what.equals("TIME")) {
                return Integer.valueOf((int) (LocalTime.from(parsed).toNanoOfDay() / 1000000L));
            }
            long millis = zoned(parsed, ZoneId.of((String) zone)).toInstant().toEpochMilli();
            return isInstant(millis) ? Long.valueOf(millis) : null;
        } catch (RuntimeException error) {
            return null;
        }
    }

    /** Days, milliseconds of a day, or Unix milliseconds; a zone in the text is not read again. */
    private String shown(long number, String pattern, String zone) {
        TemporalAccessor moment;
        if (what.equals("SHOWN_DATE")) {
            if (number < -DAYS_MAX || number > DAYS_MAX) {
                return null;
            }
            moment = LocalDate.ofEpochDay(number);
        } else if (what.equals("SHOWN_TIME")) {
            moment = LocalTime.ofNanoOfDay(number * 1000000L);
        } else {
            if (!isInstant(number)) {
                return null;
            }
            moment = Instant.ofEpochMilli(number).atZone(ZoneId.of(zone));
        }
        return formatter(pattern).format(moment);
    }

    private static boolean isInstant(long millis) {
        return millis >= -INSTANT_MS_MAX && millis <= INSTANT_MS_MAX;
    }

    private static Integer inRange(long days) {
        return days == (int) days ? Integer.valueOf((int) days) : null;
    }

    private static DateTimeFormatter formatter(String pattern) {
        DateTimeFormatter known = (DateTimeFormatter) FORMATTERS.get(pattern);
        if (known == null) {
            known = new DateTimeFormatterBuilder().parseCaseInsensitive().appendPattern(pattern)
                .toFormatter(Locale.ENGLISH);
            FORMATTERS.put(pattern, known);
        }
        return known;
    }

    /** What the text does not say is that of 1970-01-01T00:00. */
    private static ZonedDateTime zoned(TemporalAccessor parsed, ZoneId zone) {
        ZoneId own = (ZoneId) parsed.query(TemporalQueries.zone());
        ZonedDateTime made = ZonedDateTime.of(1970, 1, 1, 0, 0, 0, 0, own == null ? zone : own);
        ChronoField[] fields = ChronoField.values();
        for (int each = 0; each < fields.length; each++) {
            if (parsed.isSupported(fields[each])) {
                long value = parsed.getLong(fields[each]);
                if (fields[each] == ChronoField.DAY_OF_YEAR && value == 366) {
                    made = made.withYear(parsed.get(ChronoField.YEAR)); // else it has no such day
                }
                made = made.with(fields[each], value);
            }
        }
        return made;
    }

    /** Days of the date that a text begins with. Numbers may have any size. */
    private long lenient(String text, String pattern) {
        long year = 1970;
        long month = 1;
        long day = 1;
        boolean isOfYear = false;
        int at = 0;
        int place = 0;
        while (place < pattern.length()) {
            char mark = pattern.charAt(place);
            if (!isLetter(mark)) {
                int end = mark == '\'' ? closing(pattern, place) : place + 1;
                String plain = mark == '\'' ? quoted(pattern.substring(place, end)) : "" + mark;
                if (!text.startsWith(plain, at)) {
                    throw new IllegalArgumentException(plain);
                }
                at = at + plain.length();
                place = end;
                continue;
            }
            int count = 1;
            while (place + count < pattern.length() && pattern.charAt(place + count) == mark) {
                count = count + 1;
            }
            place = place + count;
            if (mark == 'M' && count > 2) {
                month = monthAt(text, at);
                String name = MONTHS[(int) month - 1];
                at = at + (text.regionMatches(true, at, name, 0, name.length()) ? name.length() : 3);
                continue;
            }
            boolean isFixed = isNumberAt(pattern, place);
            while (!isFixed && at < text.length() && Character.isWhitespace(text.charAt(at))) {
                at = at + 1;
            }
            int last = isFixed ? Math.min(at + count, text.length()) : text.length();
            int stop = at;
            while (stop < last && isDigit(text.charAt(stop))) {
                stop = stop + 1;
            }
            int value = Integer.parseInt(text.substring(at, stop));
            at = stop;
            if (mark == 'y') {
                year = count > 2 || value > 99 ? value : ofCentury(value);
            } else if (mark == 'M') {
                month = value;
            } else {
                day = value;
                isOfYear = mark == 'D';
            }
        }
        LocalDate first = LocalDate.of((int) year, 1, 1).plusMonths(isOfYear ? 0 : month - 1);
        return first.toEpochDay() + day - 1;
    }

    private static boolean isLetter(char mark) {
        return (mark >= 'a' && mark <= 'z') || (mark >= 'A' && mark <= 'Z');
    }

    private static boolean isDigit(char mark) {
        return mark >= '0' && mark <= '9';
    }

    /** Where the quoted part that begins at a place ends; two quotes within are one. */
    private static int closing(String pattern, int place) {
        int end = pattern.indexOf('\'', place + 1);
        while (end >= 0 && pattern.startsWith("\'\'", end)) {
            end = pattern.indexOf('\'', end + 2);
        }
        if (end < 0) {
            throw new IllegalArgumentException(pattern);
        }
        return end + 1;
    }

    private static String quoted(String part) {
        String inner = part.substring(1, part.length() - 1).replace("\'\'", "\'");
        return inner.isEmpty() ? "\'" : inner;
    }

    /** Whether a number follows at once, so that the one before it has as many digits as letters. */
    private static boolean isNumberAt(String pattern, int place) {
        if (place >= pattern.length() || !isLetter(pattern.charAt(place))) {
            return false;
        }
        return !pattern.startsWith("MMM", place);
    }

    private static int monthAt(String text, int at) {
        for (int each = 0; each < MONTHS.length; each++) {
            if (text.regionMatches(true, at, MONTHS[each], 0, 3)) {
                return each + 1;
            }
        }
        throw new IllegalArgumentException(text);
    }

    /** The year of two digits from `century` on. */
    private long ofCentury(int value) {
        int year = century / 100 * 100 + value;
        return year < century ? year + 100 : year;
    }
}
