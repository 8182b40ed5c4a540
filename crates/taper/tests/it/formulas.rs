//! Elementwise functions that kernels compute by others: values known to 17 digits (mpmath's, at points that
//! f32 holds), ends and poles, every float dtype, and what a kernel of many of them does.
#![allow(clippy::unwrap_used, clippy::panic, clippy::excessive_precision, clippy::approx_constant)]

use crate::common::{assert_close, device, drawn, has, of, tensor};
use taper::autograd::{gradcheck, gradgradcheck};
use taper::tensor_core::Formula;
use taper::{DType, Device, Tensor, prelude::*};

/// A function, and pairs of argument and value.
type Known = (Formula, &'static [(f64, f64)]);

#[rustfmt::skip]
const KNOWN: &[Known] = &[
    (Formula::Asin, &[(-1.0, -1.5707963267948966), (-0.9375, -1.2153751251046731), (-0.5, -0.52359877559829887), (-0.0009765625, -0.00097656265522049572), (0.0, 0.0), (0.25, 0.25268025514207865), (0.75, 0.84806207898148101), (0.99609375, 1.4823791815804472), (1.0, 1.5707963267948966)]),
    (Formula::Acos, &[(-1.0, 3.1415926535897932), (-0.9375, 2.7861714518995697), (-0.5, 2.0943951023931955), (-0.0009765625, 1.5717728894501171), (0.0, 1.5707963267948966), (0.25, 1.318116071652818), (0.75, 0.72273424781341561), (0.99609375, 0.088417145214449427), (1.0, 0.0)]),
    (Formula::Atan, &[(-1000000.0, -1.5707953267948966), (-3.0, -1.2490457723982544), (-1.0, -0.78539816339744831), (-0.0009765625, -0.00097656218955931943), (0.0, 0.0), (0.25, 0.24497866312686415), (0.75, 0.64350110879328439), (1.5, 0.98279372324732907), (40.0, 1.5458015331759765), (65536.0, 1.5707810680058353)]),
    (Formula::Sinh, &[(-80.0, -2.770311192196755e+34), (-3.0, -10.017874927409902), (-1.0, -1.1752011936438015), (-0.0009765625, -0.0009765626552204365), (0.0, 0.0), (0.25, 0.25261231680816831), (0.75, 0.82231673193582998), (1.5, 2.1292794550948175), (40.5, 1.9404234812181016e+17), (88.0, 8.2581812749700093e+37)]),
    (Formula::Cosh, &[(-80.0, 2.770311192196755e+34), (-3.0, 10.067661995777766), (-1.0, 1.5430806348152438), (-0.0009765625, 1.0000004768371961), (0.0, 1.0), (0.25, 1.0314130998795732), (0.75, 1.2946832846768447), (1.5, 2.3524096152432473), (40.5, 1.9404234812181016e+17), (88.0, 8.2581812749700093e+37)]),
    (Formula::Asinh, &[(-1000000.0, -14.508657738524469), (-3.0, -1.8184464592320668), (-1.0, -0.88137358701954303), (-0.0009765625, -0.00097656234477963751), (0.0, 0.0), (0.25, 0.24746646154726345), (0.75, 0.69314718055994531), (1.5, 1.1947632172871093), (5000.0, 9.2103403819761826), (1000000000.0, 21.416413017506356)]),
    (Formula::Acosh, &[(1.0, 0.0), (1.0009765625, 0.044190578083110094), (1.25, 0.69314718055994531), (2.0, 1.3169578969248167), (7.0, 2.6339157938496334), (100.0, 5.2982923656104846), (5000.0, 9.2103403619761826), (1000000000.0, 21.416413017506356)]),
    (Formula::Atanh, &[(-0.99609375, -3.1181847951018522), (-0.5, -0.54930614433405485), (-0.0009765625, -0.00097656281044103584), (0.0, 0.0), (0.25, 0.25541281188299534), (0.75, 0.97295507452765665), (0.9375, 1.7169936022425731)]),
    (Formula::Exp2, &[(-20.5, 6.7434957617430451e-7), (-3.0, 0.125), (-0.125, 0.91700404320467123), (0.0, 1.0), (0.25, 1.1892071150027211), (1.0, 2.0), (7.75, 215.26948230495092), (30.0, 1073741824.0)]),
    (Formula::Log2, &[(0.0009765625, -10.0), (0.3125, -1.6780719051126377), (0.9375, -0.093109404391481471), (1.0, 0.0), (1.0625, 0.087462841250339408), (3.0, 1.5849625007211562), (8.0, 3.0), (1000.0, 9.965784284662087), (1099511627776.0, 40.0)]),
    (Formula::Log10, &[(0.0009765625, -3.010299956639812), (0.3125, -0.50514997831990598), (0.9375, -0.028028723600243539), (1.0, 0.0), (1.0625, 0.026328938722349148), (10.0, 1.0), (1000.0, 3.0), (1000000.0, 6.0), (12345.0, 4.0914910942679511)]),
    (Formula::Sinc, &[(-7.25, -0.031045390212314002), (-1.5, -0.21220659078919378), (-0.25, 0.90031631615710607), (-0.0009765625, 0.99999843126936654), (0.0, 1.0), (0.015625, 0.99959845314967908), (0.75, 0.30010543871903536), (1.25, -0.18006326323142121), (2.5, 0.12732395447351627), (9.75, -0.023085033747618104)]),
    (Formula::Erfc, &[(-6.0, 2.0), (-1.0, 1.8427007929497149), (-0.25, 1.2763263901682369), (0.0, 1.0), (0.25, 0.72367360983176307), (0.5, 0.47950012218695346), (0.75, 0.28884436634648487), (1.0, 0.15729920705028513), (2.0, 0.0046777349810472658), (3.5, 7.4309837234141275e-7), (5.0, 1.5374597944280349e-12), (9.0, 4.1370317465138102e-37)]),
    (Formula::Erfinv, &[(-0.9990234375, -2.3314677736219477), (-0.90625, -1.1850683428330047), (-0.5, -0.47693627620446987), (-0.0009765625, -0.00086545619796713755), (0.0, 0.0), (0.25, 0.2253120550121781), (0.75, 0.81341984759761854), (0.9375, 1.3171503349861307), (0.99993896484375, 2.8346302855713941)]),
    (Formula::Lgamma, &[(-20.25, -41.600961915340524), (-3.5, -1.309006684993042), (-0.25, 1.589575312551186), (-0.0009765625, 6.9320362775113082), (0.0009765625, 6.9309089024194619), (0.25, 1.2880225246980775), (0.5, 0.57236494292470009), (0.9375, 0.039390901734582301), (1.0, 0.0), (1.25, -0.098271836421813161), (1.75, -0.084401121020485556), (2.0, 0.0), (2.5, 0.28468287047291916), (2.9375, 0.63625086284237614), (4.0, 1.791759469228055), (7.75, 8.0254583963159839), (8.0, 8.5251613610654143), (30.5, 72.953471184169408), (1000.0, 5905.2204232091812), (1000000.0, 12815504.569147612)]),
    (Formula::Digamma, &[(-20.25, 6.1742356336144838), (-3.5, 1.3888709263595289), (-0.25, 2.9141391202135278), (0.0009765625, -1024.5756104293406), (0.25, -4.2274535333762654), (0.5, -1.9635100260214235), (1.0, -0.57721566490153286), (1.25, -0.22745353337626541), (2.0, 0.42278433509846714), (2.9375, 0.89779502442903341), (7.75, 1.9817915626943456), (10.0, 2.2517525890667211), (30.5, 3.4012436689616611), (1000.0, 6.9072551956488121), (1000000.0, 13.815510057964191)]),
    (Formula::Polygamma(1), &[(-3.25, 19.474085068082155), (-0.25, 18.541879647671606), (0.0009765625, 1048577.6425893922), (0.25, 17.197329154507111), (1.0, 1.6449340668482264), (2.5, 0.49035775610023486), (9.75, 0.10800324333663185), (30.5, 0.033330248112801609), (1000.0, 0.0010005001666666333)]),
    (Formula::Polygamma(3), &[(-20.625, 345.72476823359081), (-3.25, 1558.5088028182791), (-0.25, 1555.7633125348506), (-0.0078125, 1610612742.6921475), (1.0, 6.4939394022668291), (2.5, 0.22390584881725058)]),
    (Formula::Polygamma(2), &[(-20.625, -30.095776679093608), (-7.03125, 65535.575330770257), (-3.25, 123.95521103942202), (-0.25, 122.69736678366236), (0.015625, -524290.30560802492), (0.25, -129.32773993753692), (1.0, -2.4041138063191886), (2.5, -0.2362040516417274), (9.75, -0.011653444287958334), (30.5, -0.0011108026689359417), (100.0, -0.00010100499983335)]),
    (Formula::Bessel { first: false, scaled: false }, &[(-30.0, 781672297823.97749), (-8.5, 683.16192699011561), (-3.0, 4.8807925858650241), (-0.25, 1.0156861412236079), (0.0, 1.0000000000000000), (0.0009765625, 1.0000002384185933), (0.5, 1.0634833707413235), (1.0, 1.2660658777520083), (2.5, 3.2898391440501230), (7.75, 338.51375374727595), (8.0, 427.56411572180479), (8.25, 540.32507907480698), (20.5, 70922869.834317007), (60.0, 5.8940770556098012e+24)]),
    (Formula::Bessel { first: true, scaled: false }, &[(-30.0, -768532038938.95700), (-8.5, -641.61990254006676), (-3.0, -3.9533702174026094), (-0.25, -0.12597910894546793), (0.0, 0.0), (0.0009765625, 0.00048828130820766323), (0.5, 0.25789430539089632), (1.0, 0.56515910399248503), (2.5, 2.5167162452886984), (7.75, 315.85248092400340), (8.0, 399.87313678256010), (8.25, 506.43383830764547), (20.5, 69170831.679184373), (60.0, 5.8447515883904683e+24)]),
    (Formula::Bessel { first: false, scaled: true }, &[(-30.0, 0.073145946482237294), (-8.5, 0.13900184305484760), (-3.0, 0.24300035416182540), (-0.25, 0.79101716213971936), (0.0, 1.0000000000000000), (0.0009765625, 0.99902415236785197), (0.5, 0.64503527044915007), (1.0, 0.46575960759364044), (2.5, 0.27004644161220274), (7.75, 0.14581227430891431), (8.0, 0.14343178185685031), (8.25, 0.14116455063299350), (20.5, 0.088664429015745248), (60.0, 0.051611549173609841), (1000.0, 0.012617240455891257)]),
    (Formula::Bessel { first: true, scaled: true }, &[(-30.0, -0.071916330598647555), (-8.5, -0.13054935509459586), (-3.0, -0.19682671329730085), (-0.25, -0.098112628697368247), (0.0, 0.0), (0.0009765625, 0.00048780470374751536), (0.5, 0.15642080318487170), (1.0, 0.20791041534970845), (2.5, 0.20658464953126655), (7.75, 0.13605110008033911), (8.0, 0.13414249329269818), (8.25, 0.13231017396500142), (20.5, 0.086474113494087246), (60.0, 0.051179630189028718), (1000.0, 0.012610930256928629)]),
    (Formula::Erfcx, &[(-5.5, 27443409954929.71), (-2.25, 315.73888373164454), (-0.25, 1.3586423701047221), (0.0, 1.0), (0.25, 0.77034654773099674), (0.5, 0.61569034419292587), (1.0, 0.427583576155807), (3.75, 0.14558972127503854), (12.5, 0.044992099001027921), (200.0, 0.0028209126572120464), (10000.0, 5.6418958072680841e-5)]),
    (Formula::LogNdtr, &[(-1000.0, -500007.82669481218), (-60.5, -1835.1468549172717), (-10.25, -55.786767863451486), (-2.0, -3.7831843336820319), (-1.0, -1.8410216450092635), (-0.25, -0.91306176481113506), (0.0, -0.69314718055994531), (0.5, -0.36894641528865639), (2.25, -0.012299806091449409), (4.0, -3.1671743377489264e-5)]),
    (Formula::Ndtri, &[(9.5367431640625e-07, -4.763001034267814), (0.0009765625, -3.0972690781987845), (0.0625, -1.5341205443525463), (0.25, -0.67448975019608174), (0.4375, -0.1573106846101707), (0.5, 0.0), (0.625, 0.31863936396437516), (0.875, 1.1503493803760082), (0.9375, 1.5341205443525463), (0.99609375, 2.6600674686174597)]),
    (Formula::BesselJ { first: false }, &[(-7.5, 0.2663396578803784), (-0.25, 0.9844359292958527), (0.0, 1.0), (0.5, 0.9384698072408129), (1.25, 0.64590608527128526), (2.5, -0.048383776468197996), (4.75, -0.25512082749137391), (5.25, -0.093080989639317873), (12.5, 0.1468840547004211), (30.0, -0.086367983581040211), (100.5, 0.054436573814413591)]),
    (Formula::BesselJ { first: true }, &[(-7.5, -0.13524842757970551), (-0.25, -0.12402597732272692), (0.0, 0.0), (0.5, 0.24226845767487389), (1.25, 0.51062326031988047), (2.5, 0.49709410246427404), (4.75, -0.28918679864711041), (5.25, -0.34501397857943768), (12.5, -0.16548380461475972), (30.0, -0.11875106261662294), (100.5, -0.057791123996932021)]),
    (Formula::BesselY { first: false }, &[(0.0009765625, -4.4865150767109739), (0.25, -0.93157302493005869), (0.5, -0.44451873350670656), (1.25, 0.25821685159454078), (2.5, 0.49807035961523189), (4.75, -0.26123250323497559), (5.25, -0.33477723515498113), (12.5, -0.17121430684466929), (30.0, -0.11729573168666403), (100.5, -0.058061227570355749)]),
    (Formula::BesselY { first: true }, &[(0.0009765625, -651.90099301063115), (0.25, -2.7041052293152824), (0.5, -1.4714723926702431), (1.25, -0.58436403661500817), (2.5, 0.1459181379667858), (4.75, 0.22922559673872216), (5.25, 0.061861000898943727), (12.5, -0.15383825653750118), (30.0, 0.084425570661747235), (100.5, -0.054726102094683486)]),
    (Formula::BesselK { first: false, scaled: false }, &[(0.0009765625, 7.0474052399084523), (0.25, 1.5415067512483028), (0.5, 0.92441907122766586), (1.25, 0.29760308908410592), (2.0, 0.11389387274953344), (2.25, 0.084043111974658112), (4.75, 0.0048572045578879528), (12.5, 1.3084036967769774e-6), (30.0, 2.1324774964630564e-14), (80.0, 2.5251198425054718e-36)]),
    (Formula::BesselK { first: true, scaled: false }, &[(0.0009765625, 1023.9963147439891), (0.25, 3.7470259744407116), (0.5, 1.6564411200033009), (1.25, 0.40212407978419541), (2.0, 0.13986588181652243), (2.25, 0.10121630256832526), (4.75, 0.00534592181782284), (12.5, 1.3597678438215176e-6), (30.0, 2.1677320018915494e-14), (80.0, 2.54085312752117e-36)]),
    (Formula::BesselK { first: false, scaled: true }, &[(0.0009765625, 7.0542908331469061), (0.25, 1.9793338485985687), (0.5, 1.5241093857739095), (1.25, 1.0387368461035981), (2.0, 0.84156821507077142), (2.25, 0.79737884528105611), (4.75, 0.56141651362567387), (12.5, 0.35109349766701513), (30.0, 0.22788666561625373), (1000.0, 0.039628321600754217)]),
    (Formula::BesselK { first: true, scaled: true }, &[(0.0009765625, 1024.9967995835829), (0.25, 4.8112765881710253), (0.5, 2.7310097082117857), (1.25, 1.4035509499005901), (2.0, 1.0334768470686886), (2.25, 0.96031354110120701), (4.75, 0.6179045484513354), (12.5, 0.36487641350940624), (30.0, 0.2316541293777118), (1000.0, 0.03964813081296021)]),
    (Formula::AiryAi, &[(-8.25, -0.25453632099656065), (-5.0, 0.35076100902411432), (-2.25, 0.061598658777005278), (-2.0, 0.22740742820168558), (-1.0, 0.53556088329235212), (-0.25, 0.41872461427545292), (0.0, 0.35502805388781724), (0.5, 0.23169360648083349), (1.0, 0.13529241631288142), (2.0, 0.034924130423274379), (2.5, 0.01572592338047049), (5.0, 0.00010834442813607442), (9.0, 2.4711684308724898e-9)]),
    (Formula::Tanhshrink, &[(-40.0, -39.0), (-3.0, -2.0049452463132695), (-1.0, -0.23840584404423511), (-0.0009765625, -3.1044073978141592e-10), (0.0, 0.0), (0.25, 0.0050813375962908707), (0.75, 0.11485104761271268), (1.5, 0.59485174635513356), (2.5, 1.5133857018485697), (1000.0, 999.0)]),
    (Formula::Softsign, &[(-40.0, -0.97560975609756098), (-3.0, -0.75), (-1.0, -0.5), (-0.0009765625, -0.00097560975609756098), (0.0, 0.0), (0.25, 0.2), (0.75, 0.42857142857142857), (1.5, 0.6), (2.5, 0.71428571428571429), (1000.0, 0.999000999000999)]),
    (Formula::Logit, &[(0.0009765625, -6.9304947659516265), (0.25, -1.0986122886681097), (0.4375, -0.25131442828090608), (0.5, 0.0), (0.5009765625, 0.0039062549670651), (0.75, 1.0986122886681097), (0.9375, 2.7080502011022101), (0.9990234375, 6.9304947659516265)]),
];

fn apply(formula: Formula, x: &Tensor) -> Tensor {
    match formula {
        Formula::Asin => x.asin(),
        Formula::Acos => x.acos(),
        Formula::Atan => x.atan(),
        Formula::Sinh => x.sinh(),
        Formula::Cosh => x.cosh(),
        Formula::Asinh => x.asinh(),
        Formula::Acosh => x.acosh(),
        Formula::Atanh => x.atanh(),
        Formula::Exp2 => x.exp2(),
        Formula::Log2 => x.log2(),
        Formula::Log10 => x.log10(),
        Formula::Sinc => x.sinc(),
        Formula::Erfc => x.erfc(),
        Formula::Erfinv => x.erfinv(),
        Formula::Lgamma => x.lgamma(),
        Formula::Digamma => x.digamma(),
        Formula::Polygamma(n) => x.polygamma(n),
        Formula::Bessel { first: false, scaled: false } => x.i0(),
        Formula::Bessel { first: true, scaled: false } => x.i1(),
        Formula::Bessel { first: false, scaled: true } => x.i0e(),
        Formula::Bessel { first: true, scaled: true } => x.i1e(),
        Formula::Erfcx => x.erfcx(),
        Formula::LogNdtr => x.log_ndtr(),
        Formula::Ndtri => x.ndtri(),
        Formula::BesselJ { first: false } => x.bessel_j0(),
        Formula::BesselJ { first: true } => x.bessel_j1(),
        Formula::BesselY { first: false } => x.bessel_y0(),
        Formula::BesselY { first: true } => x.bessel_y1(),
        Formula::BesselK { first: false, scaled: false } => x.modified_bessel_k0(),
        Formula::BesselK { first: true, scaled: false } => x.modified_bessel_k1(),
        Formula::BesselK { first: false, scaled: true } => x.scaled_modified_bessel_k0(),
        Formula::BesselK { first: true, scaled: true } => x.scaled_modified_bessel_k1(),
        Formula::AiryAi => x.airy_ai(),
        Formula::Tanhshrink => x.tanhshrink(),
        Formula::Softsign => x.softsign(),
        Formula::Logit => x.logit(None),
    }
}

fn known(formula: Formula) -> (Vec<f64>, Vec<f64>) {
    let pairs = KNOWN
        .iter()
        .find(|(f, _)| *f == formula)
        .unwrap_or_else(|| panic!("no values of {}", formula.name()));
    pairs.1.iter().copied().unzip()
}

#[test]
fn values_are_those_of_the_functions() {
    let d = device();
    for (dtype, within) in [
        (DType::F64, (2e-13, 1e-14)),
        (DType::F32, (4e-6, 3e-7)),
        (DType::F16, (2e-3, 1e-3)),
        (DType::BF16, (1e-2, 4e-3)),
    ] {
        if !has(&d, dtype) {
            continue;
        }
        for &formula in Formula::ALL.iter().filter(|formula| drawn(format!("{} of {dtype}", formula.name())))
        {
            let (x, _) = known(formula);
            let x = of(&x, &[x.len()], dtype, &d).unwrap();
            let found = apply(formula, &x).to_f64_vec().unwrap();
            // At what the dtype made of the argument: other points than the table's where halves round it.
            let exact = x.to_f64_vec().unwrap();
            let (points, values) = known(formula);
            let at: Vec<usize> = (0..points.len())
                .filter(|&i| exact[i] == points[i] && values[i].abs() < limit(dtype))
                .collect();
            assert!(at.len() * 2 > points.len(), "{} of {dtype}: too few points", formula.name());
            let pick = |list: &[f64]| at.iter().map(|&i| list[i]).collect::<Vec<_>>();
            assert_close(&pick(&found), &pick(&values), within, &format!("{} of {dtype}", formula.name()));
        }
    }
}

/// How many units in the last place a function may be off. Where J, Y and Ai cross 0 nothing holds relative
/// to the value.
const ACCURATE: &[(Formula, f64)] = &[
    (Formula::Erfcx, 8.0),
    (Formula::LogNdtr, 8.0),
    (Formula::Ndtri, 8.0),
    (Formula::BesselK { first: false, scaled: false }, 16.0),
    (Formula::BesselK { first: true, scaled: false }, 16.0),
    (Formula::BesselK { first: false, scaled: true }, 16.0),
    (Formula::BesselK { first: true, scaled: true }, 16.0),
];

/// The greatest number of a dtype.
fn limit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::F64 => f64::MAX,
        _ => f64::from(f32::MAX),
    }
}

#[test]
fn ends_poles_and_nan() {
    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;
    let d = device();
    let dtypes: Vec<DType> = [DType::F32, DType::F64].into_iter().filter(|&dtype| has(&d, dtype)).collect();
    for (formula, pairs) in [
        (Formula::Asin, &[(1.5, NAN), (-2.0, NAN)][..]),
        (Formula::Acos, &[(1.5, NAN), (1.0, 0.0)]),
        (Formula::Atan, &[(INF, std::f64::consts::FRAC_PI_2), (-INF, -std::f64::consts::FRAC_PI_2)]),
        (Formula::Sinh, &[(INF, INF), (-INF, -INF), (1000.0, INF)]),
        (Formula::Cosh, &[(INF, INF), (-INF, INF), (1000.0, INF)]),
        (Formula::Asinh, &[(INF, INF), (-INF, -INF)]),
        (Formula::Acosh, &[(INF, INF), (0.5, NAN), (-1.0, NAN), (-5.0, NAN), (-INF, NAN)]),
        (Formula::Atanh, &[(1.0, INF), (-1.0, -INF), (1.5, NAN), (-3.0, NAN)]),
        (Formula::Exp2, &[(INF, INF), (-INF, 0.0)]),
        (Formula::Log2, &[(0.0, -INF), (-1.0, NAN), (INF, INF)]),
        (Formula::Log10, &[(0.0, -INF), (-1.0, NAN), (INF, INF)]),
        (Formula::Erfc, &[(INF, 0.0), (-INF, 2.0), (100.0, 0.0)]),
        (Formula::Erfinv, &[(1.0, INF), (-1.0, -INF), (1.5, NAN)]),
        (
            Formula::Lgamma,
            &[
                (0.0, INF),
                (-1.0, INF),
                (-7.0, INF),
                (INF, INF),
                (-INF, INF),
                (1e30, 6.8077552789821370521e31),
            ],
        ),
        (Formula::Digamma, &[(0.0, -INF), (-0.0, INF), (-1.0, NAN), (-7.0, NAN), (INF, INF)]),
        (Formula::Polygamma(1), &[(0.0, INF), (INF, 0.0), (-1.0, INF)]),
        (Formula::Polygamma(2), &[(0.0, -INF), (-0.0, -INF), (-3.0, -INF)]),
        (Formula::Polygamma(3), &[(0.0, INF), (-2.0, INF)]),
        (Formula::Bessel { first: false, scaled: false }, &[(INF, INF), (-INF, INF), (1000.0, INF)]),
        (Formula::Bessel { first: true, scaled: false }, &[(INF, INF), (-INF, -INF), (-1000.0, -INF)]),
        (Formula::Bessel { first: false, scaled: true }, &[(INF, 0.0), (-INF, 0.0)]),
        (Formula::Bessel { first: true, scaled: true }, &[(INF, 0.0), (-INF, 0.0)]),
        (Formula::Erfcx, &[(INF, 0.0), (-INF, INF), (-40.0, INF)]),
        (Formula::LogNdtr, &[(INF, 0.0), (-INF, -INF), (50.0, 0.0)]),
        (Formula::Ndtri, &[(0.0, -INF), (1.0, INF), (-0.5, NAN), (1.5, NAN)]),
        (Formula::BesselJ { first: false }, &[(INF, 0.0), (-INF, 0.0)]),
        (Formula::BesselJ { first: true }, &[(INF, 0.0), (-INF, 0.0)]),
        (Formula::BesselY { first: false }, &[(0.0, -INF), (-1.0, NAN), (INF, 0.0)]),
        (Formula::BesselY { first: true }, &[(0.0, -INF), (-1.0, NAN), (INF, 0.0)]),
        (Formula::BesselK { first: false, scaled: false }, &[(0.0, INF), (-1.0, NAN), (INF, 0.0)]),
        (Formula::BesselK { first: true, scaled: false }, &[(0.0, INF), (-1.0, NAN), (INF, 0.0)]),
        (Formula::BesselK { first: false, scaled: true }, &[(0.0, INF), (-1.0, NAN), (INF, 0.0)]),
        (Formula::BesselK { first: true, scaled: true }, &[(0.0, INF), (-1.0, NAN), (INF, 0.0)]),
        (Formula::AiryAi, &[(INF, 0.0), (-INF, 0.0), (200.0, 0.0)]),
        (Formula::Tanhshrink, &[(INF, INF), (-INF, -INF)]),
        (Formula::Softsign, &[(1e38, 1.0), (-1e38, -1.0)]),
        (Formula::Logit, &[(0.0, -INF), (1.0, INF), (1.5, NAN), (-0.5, NAN), (INF, NAN)]),
    ] {
        for &dtype in &dtypes {
            let (x, y): (Vec<f64>, Vec<f64>) = pairs.iter().copied().chain([(NAN, NAN)]).unzip();
            let x = of(&x, &[x.len()], dtype, &d).unwrap();
            let found = apply(formula, &x).to_f64_vec().unwrap();
            assert_close(&found, &y, (1e-5, 0.0), &format!("{} of {dtype}", formula.name()));
        }
    }
    // The zeros of odd functions keep their signs.
    let zero = of(&[-0.0], &[1], DType::F32, &d).unwrap();
    for formula in [
        Formula::Asin,
        Formula::Atan,
        Formula::Sinh,
        Formula::Asinh,
        Formula::Atanh,
        Formula::Erfinv,
        Formula::Tanhshrink,
    ] {
        let found = apply(formula, &zero).to_f64_vec().unwrap();
        assert!(found[0] == 0.0 && found[0].is_sign_negative(), "{}", formula.name());
    }
    for k in -10..=10 {
        let x = of(&[f64::from(k).exp2()], &[1], DType::F32, &d).unwrap();
        assert_eq!(x.log2().to_f64_vec().unwrap(), [f64::from(k)]);
    }
    assert_eq!(of(&[1e3, 1e10], &[2], DType::F32, &d).unwrap().log10().to_f64_vec().unwrap(), [3.0, 10.0]);
}

/// Arguments where the function is smooth.
fn inside(formula: Formula, dtype: DType, d: &Device) -> Tensor {
    let x = tensor(&[2, 3], 11, dtype, d).unwrap();
    match formula {
        Formula::Asin | Formula::Acos | Formula::Atanh | Formula::Erfinv => x.tanh() * 0.8,
        Formula::Acosh => x.abs() + 1.4,
        Formula::Log2
        | Formula::Log10
        | Formula::Lgamma
        | Formula::Digamma
        | Formula::Polygamma(_)
        | Formula::BesselY { .. }
        | Formula::BesselK { .. } => x.abs() + 0.6,
        Formula::Ndtri => x.tanh() * 0.4 + 0.5,
        Formula::Atan
        | Formula::Sinh
        | Formula::Cosh
        | Formula::Asinh
        | Formula::Exp2
        | Formula::Sinc
        | Formula::Erfc
        | Formula::Bessel { .. }
        | Formula::Erfcx
        | Formula::LogNdtr
        | Formula::BesselJ { .. }
        | Formula::AiryAi
        | Formula::Tanhshrink
        | Formula::Softsign => x * 0.7 + 0.05,
        Formula::Logit => x.sigmoid(),
    }
    .detach()
}

#[test]
fn first_and_second_derivatives() {
    let d = device();
    // Airy's function has no gradient, and says so.
    let x = of(&[0.5], &[1], DType::F32, &d).unwrap().requires_grad();
    let error = x.airy_ai().sum().backward().unwrap_err().to_string();
    assert!(error.contains("airy_ai"), "{error}");
    for &formula in Formula::ALL.iter().filter(|formula| **formula != Formula::AiryAi) {
        let name = formula.name();
        if !drawn(name) {
            continue;
        }
        if has(&d, DType::F64) {
            let x = inside(formula, DType::F64, &d);
            gradcheck(|x| Ok(apply(formula, &x[0])), std::slice::from_ref(&x))
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            gradgradcheck(|x| Ok(apply(formula, &x[0])), &[x]).unwrap_or_else(|e| panic!("{name}: {e}"));
        } else {
            let gradient = |d: &Device| {
                let x = inside(formula, DType::F32, d).requires_grad();
                apply(formula, &x).sum().backward().unwrap();
                x.grad().unwrap().to_f64_vec().unwrap()
            };
            assert_close(&gradient(&d), &gradient(&taper::cpu()), (1e-4, 1e-5), name);
        }
    }
}

/// Functions of the normal distribution and of Bessel are right to the last digits over their whole range,
/// beside values of mpmath.
#[test]
fn special_functions_to_the_last_digits() {
    let d = device();
    for (dtype, ulp) in [(DType::F64, f64::EPSILON), (DType::F32, f64::from(f32::EPSILON))] {
        if !has(&d, dtype) {
            continue;
        }
        for &(formula, times) in ACCURATE {
            let (points, values) = known(formula);
            let x = of(&points, &[points.len()], dtype, &d).unwrap();
            let found = apply(formula, &x).to_f64_vec().unwrap();
            for ((x, found), value) in points.iter().zip(&found).zip(&values) {
                let off = (found - value).abs() / (value.abs().max(1e-37) * ulp);
                assert!(off < times, "{} of {dtype} at {x}: {found}, not {value}: {off} ulp", formula.name());
            }
        }
    }
}

/// A chain of many instructions is cut where a device takes no more.
#[test]
fn chains_of_formulas_are_cut() {
    let chain = |d: &Device| {
        let x = tensor(&[40], 3, DType::F32, d).unwrap().abs() + 1.5;
        let mut sum = x.lgamma();
        for k in 0..6 {
            let y = (&x + f64::from(k)).digamma().erfc().erfinv();
            sum = sum.add(&y.atan().sinh()).unwrap();
        }
        sum.to_f64_vec().unwrap()
    };
    assert_close(&chain(&device()), &chain(&crate::common::reference_device()), (1e-4, 1e-5), "chain");
}

#[test]
fn integers_become_the_default_dtype() {
    let d = device();
    let x = Tensor::new([0i64, 1], &d).unwrap();
    assert_eq!(x.asinh().dtype(), taper::default_dtype());
    assert_eq!(x.digamma().to_f64_vec().unwrap()[0], f64::NEG_INFINITY);
}
