import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command line tools, one after the other in one JVM. What to run comes on standard input: the class, its
 * words and what it reads; what it did goes to standard output: status, output and errors. See `one_jvm.py`.
 */
public class Tools {
    /** Where a tool writes; what it writes after it has ended is lost, as with a process of its own. */
    private static final class Written extends OutputStream {
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        private boolean open;

        @Override
        public synchronized void write(int one) {
            if (open) {
                bytes.write(one);
            }
        }

        @Override
        public synchronized void write(byte[] some, int from, int count) {
            if (open) {
                bytes.write(some, from, count);
            }
        }

        synchronized void open(boolean wanted) {
            open = wanted;
        }

        synchronized byte[] taken() {
            byte[] found = bytes.toByteArray();
            bytes.reset();
            return found;
        }
    }

    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static final Written OUT = new Written();
    private static final Written ERRORS = new Written();
    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static Integer status;

    public static void main(String[] none) throws Exception {
        DataInputStream asked = new DataInputStream(new FileInputStream(FileDescriptor.in));
        DataOutputStream told = new DataOutputStream(new FileOutputStream(FileDescriptor.out));
        System.setOut(new PrintStream(OUT, true));
        System.setErr(new PrintStream(ERRORS, true));
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        int count;
        while ((count = asked.read()) >= 0) {
            String tool = asked.readUTF();
            String[] words = new String[count];
            for (int at = 0; at < count; at++) {
                words[at] = asked.readUTF();
            }
            System.setIn(new ByteArrayInputStream(asked.readNBytes(asked.readInt())));
            told.writeInt(run(tool, words));
            for (Written each : List.of(OUT, ERRORS)) {
                byte[] bytes = each.taken();
                told.writeInt(bytes.length);
                told.write(bytes);
            }
        }
    }

    private static synchronized void end(int code) {
        if (status == null) {
            status = code;
            open(false);
        }
        throw new Ended();
    }

    private static void open(boolean wanted) {
        OUT.open(wanted);
        ERRORS.open(wanted);
    }

    private static int run(String tool, String[] words) throws ReflectiveOperationException {
        status = null;
        HOOKS.clear();
        open(true);
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) words);
        } catch (InvocationTargetException thrown) {
            if (status == null) {
                System.err.print("Exception in thread \"main\" ");
                thrown.getCause().printStackTrace();
                status = 1;
            }
        }
        open(true);
        List.copyOf(HOOKS).forEach(Runnable::run);
        open(false);
        return status == null ? 0 : status;
    }
}
